"""The main memory of a process that has imported torch and transformers, before it has a model.

It depends on the build of torch: 0.4 GB with the build for CPUs, twice that with CUDA's libraries.
So it is measured: once per environment, in a child process, and cached.
"""

import functools
import hashlib
import importlib.metadata
import subprocess
import sys

from gspo_lab.common.atomic_files import read_json, write_json
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import cache_folder

WITHOUT_TORCH = 0.4e9
"""Assumed where torch is not installed, so that no worker can run here."""

MEASURE = """
import sys
import gspo_lab.training.engines.native.loop
if sys.platform == "linux":
    status = open("/proc/self/status").read()
    kibibytes = int(status.split("VmRSS:")[1].split()[0])
    print(1024 * kibibytes)
else:
    import resource
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(peak if sys.platform == "darwin" else 1024 * peak)
"""
"""Prints the bytes that are resident after the imports of a worker."""


@functools.cache
def process_memory() -> float:
    """Bytes that a worker's process takes in main memory before it has a model."""
    try:
        versions = [importlib.metadata.version(name) for name in ("torch", "transformers")]
    except importlib.metadata.PackageNotFoundError:
        return WITHOUT_TORCH
    environment = repr((sys.prefix, sys.version, versions))
    digest = hashlib.sha256(environment.encode()).hexdigest()[:12]
    path = cache_folder() / "process-memory" / f"{digest}.json"
    cached = read_json(path)
    if cached is None:
        cached = {"environment": environment, "bytes": _measured()}
        write_json(path, cached, shared=True)
    return float(cached["bytes"])


def _measured() -> int:
    child = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True)
    if child.returncode:
        reason = child.stderr.strip().rpartition("\n")[2]
        raise LabError(f"torch and transformers cannot be imported: {reason}; install them again")
    return int(child.stdout.split()[-1])
