"""The kinds of isolation, best first, and how the first process of a house is started behind each.

* bubblewrap: needs `bwrap` and user namespaces. Own view of files, processes, network, IPC and host name; an empty,
  capped /tmp; seccomp; limits.
* landlock: needs Linux 5.13 with Landlock. Reads the system and the interpreter, writes nothing, signals nobody;
  seccomp; limits.
* none: limits alone.

Started as root, every slot has a uid of its own, dropped to before anything else: bubblewrap run by root can be left.
"""

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gspo_lab.sandbox.program import MIB

Kind = Literal["bubblewrap", "landlock", "none"]

SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr")
CONFIGURATION = ("/etc/alternatives", "/etc/ld.so.cache")
"""Debian's numpy finds its linear algebra through these."""
DEVICES = ("/dev/zero", "/dev/random", "/dev/urandom")
NUMPY = "/numpy"

ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",
    "LC_ALL": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # the same set order, and so the same verdict, whenever an answer is graded again
    "PYTHONDONTWRITEBYTECODE": "1",
    "MALLOC_ARENA_MAX": "2",  # every arena reserves address space, which is limited
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""All that bubblewrap itself is started with: a program can read it in /proc/1/environ, whatever --clearenv says."""


@dataclass(frozen=True, slots=True)
class Walls:
    kind: Kind
    python: Path
    numpy: Path | None
    """A folder that holds numpy for this Python, if the program may import it."""

    @property
    def prefix(self) -> Path | None:
        """Where the interpreter lies if that is outside of the system's folders."""
        return None if any(self.python.is_relative_to(folder) for folder in SYSTEM) else self.python.parents[1]

    def level(self, uid: int | None) -> str:
        if self.kind == "none":
            return "none"
        return f"{self.kind}+seccomp+rlimits" + ("" if uid is None else ", uid per slot")

    def readable(self) -> list[str]:
        """What Landlock lets a program read and run."""
        extra = [str(path) for path in (self.prefix, *self.numpy_folders()) if path]
        return [*SYSTEM, *CONFIGURATION, *DEVICES, *extra]

    def numpy_folders(self) -> list[Path]:
        if self.numpy is None:
            return []
        return [path for path in (self.numpy / "numpy", self.numpy / "numpy.libs") if path.is_dir()]

    def numpy_inside(self) -> str | None:
        """The entry of sys.path under which the program finds numpy."""
        if self.numpy is None:
            return None
        return NUMPY if self.kind == "bubblewrap" else str(self.numpy)

    def command(self, text: str, uid: int | None, file_bytes: int) -> list[str]:
        """The command line of a house: `text` is what its first process runs, `file_bytes` the size of its /tmp."""
        python = [str(self.python), "-s", "-c", text]
        if self.kind != "bubblewrap":
            return python
        drop = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs"]
        return [*(drop if uid is not None else []), *self.bubblewrap(file_bytes), *python]

    def bubblewrap(self, file_bytes: int) -> list[str]:
        command = ["bwrap", "--unshare-user", "--unshare-all", "--die-with-parent", "--new-session", "--as-pid-1"]
        if can_disable_userns():
            command.append("--disable-userns")
        for path in SYSTEM:
            if Path(path).is_symlink():
                command += ["--symlink", str(Path(path).readlink()), path]
            else:
                command += ["--ro-bind-try", path, path]
        for path in CONFIGURATION:
            command += ["--ro-bind-try", path, path]
        if self.prefix:
            command += ["--ro-bind", str(self.prefix), str(self.prefix)]
        for folder in self.numpy_folders():
            command += ["--ro-bind", str(folder), f"{NUMPY}/{folder.name}"]
        command += ["--proc", "/proc", "--dev", "/dev"]
        command += ["--size", str(file_bytes), "--tmpfs", "/tmp"]
        command += ["--size", str(min(file_bytes, 4 * MIB)), "--tmpfs", "/dev/shm"]
        return [*command, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]


@functools.cache
def can_disable_userns() -> bool:
    """Whether this bubblewrap knows the option (since 0.8); seccomp refuses new namespaces in any case."""
    told = subprocess.run(["bwrap", "--help"], capture_output=True, text=True, check=False)
    return "--disable-userns" in told.stdout + told.stderr


def missing(kind: Kind) -> str | None:
    """What a kind of walls lacks here before anything is tried."""
    tools = {"bubblewrap": ["bwrap", *(["setpriv"] if os.geteuid() == 0 else [])]}.get(kind, [])
    absent = [tool for tool in tools if shutil.which(tool) is None]
    return f"{' and '.join(absent)} not installed" if absent else None


def pythons() -> list[Path]:
    """Interpreters to try: the one under this process, then the system's.

    Not one whose prefix, all of which is shown inside, holds the home or the working folder.
    """
    own = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    version = f"python3.{sys.version_info.minor}"
    system = [Path("/usr/bin") / name for name in (version, "python3")]
    private = any(folder.is_relative_to(own.parents[1]) for folder in (Path.home(), Path.cwd()))
    found = [
        *([] if private and not own.is_relative_to("/usr") else [own]),
        *(p.resolve() for p in system if p.exists()),
    ]
    return list(dict.fromkeys(found))


def numpy_for(python: Path) -> Path | None:
    """The folder of this environment's numpy if that interpreter can import it, being of the same version."""
    found = importlib.util.find_spec("numpy")
    if found is None or found.origin is None or not python.name.endswith(f"3.{sys.version_info.minor}"):
        return None
    return Path(found.origin).parents[1]
