"""A machine with less memory than a program may use.

A program that exhausts it is incorrect, and not left ungraded.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from isolation import opened

from gspo_lab.tasks.sandbox import isolated_process

GIB = 1 << 30

PROGRAMS = {
    "private": "kept = []\nwhile True: kept.append(bytearray(os.urandom(1 << 20)) * 32)",
    "shared and released": """
import mmap
kept = []
while True:
    kept.append(mmap.mmap(-1, 32 << 20))
    kept[-1].write(bytes(32 << 20))
    kept[-1].madvise(mmap.MADV_DONTNEED)
""",
    "in many processes": """
for _ in range(20):
    if not os.fork():
        kept = [bytearray(os.urandom(1 << 20)) * 32 for _ in range(8)]
        time.sleep(60)
time.sleep(60)
""",
    "small": "print(1)",
}

LAB = """
import json, os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
from gspo_lab.tasks.sandbox import Limits, Program, Sandbox
limits = Limits(seconds=8.0, memory_bytes=4 << 30)
endings = {}
with Sandbox.open(slots=1) as sandbox:
    for name, source in json.load(sys.stdin).items():
        endings[name] = sandbox.run(Program("import os, time\\n" + source), [b""], limits)[0].ending
print(json.dumps(endings))
"""


@pytest.fixture
def group_of_two_gigabytes() -> Iterator[Path]:
    """A cgroup that is limited as a machine of 2 GiB is."""
    for root, limit, _ in isolated_process.CGROUPS.values():
        group = Path(root, f"gspo-lab-test-{os.getpid()}")
        with contextlib.suppress(OSError):
            group.mkdir()
        try:
            if (group / limit).is_file():
                (group / limit).write_text(str(2 * GIB))
                yield group
                return
        finally:
            if group.is_dir():
                group.rmdir()
    pytest.skip("no cgroup with a memory limit can be made here")


@pytest.mark.slow
def test_whoever_exhausts_two_gigabytes_is_wrong(group_of_two_gigabytes: Path) -> None:
    opened(1).close()
    lab = subprocess.run(
        [sys.executable, "-c", LAB, str(group_of_two_gigabytes)],
        input=json.dumps(PROGRAMS),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert lab.returncode == 0, lab.stderr
    endings = json.loads(lab.stdout)
    assert endings.pop("in many processes") in ("memory", "time"), (
        "who is left after its children's end waits on"
    )
    assert endings == {"private": "memory", "shared and released": "memory", "small": "finished"}


def test_what_is_left_is_the_least_of_the_machine_and_each_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, numbers in {"": (900, 100), "a": (500, 200), "a/b": ("max", 50)}.items():
        (tmp_path / name).mkdir(exist_ok=True)
        for file, number in zip(("memory.max", "memory.current"), numbers, strict=True):
            (tmp_path / name / file).write_text(f"{number}\n")
    monkeypatch.setitem(
        isolated_process.CGROUPS, "", (str(tmp_path), "memory.max", "memory.current")
    )
    read_text = Path.read_text
    groups = iter(("0::/a/b\n", "0::/\n", "4:cpu:/a\n"))
    monkeypatch.setattr(
        Path,
        "read_text",
        lambda path: next(groups) if path == Path("/proc/self/cgroup") else read_text(path),
    )
    assert [isolated_process.memory_available() for _ in range(2)] == [300, 800]
    assert isolated_process.memory_available() > 1 << 20, "the machine's: no group limits memory"
    assert next(groups, "all read") == "all read"
