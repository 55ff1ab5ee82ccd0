"""The command of a sandbox's first process: with bubblewrap, or with limits only if the user allows
it.

Behind bubblewrap (`bwrap` and user namespaces) it has its own view of files, processes, network,
IPC and host name, and an empty, capped /tmp; a seccomp filter and limits come on top.

Started as root, every slot has a uid of its own, dropped to before anything else: bubblewrap run by
root can be left.
"""

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from gspo_lab.common.plain_data import OptionalInt
from gspo_lab.tasks.sandbox.program import MIB, Limits

SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr")
CONFIGURATION = ("/etc/alternatives", "/etc/ld.so.cache")
"""Debian's numpy finds its linear algebra through these."""
DEVICES = ("null", "full", "random", "urandom")
"""Without terminals, of which the machine has a limited number, and without `zero`: a shared
mapping of it is memory that no limit counts."""
STREAMS = {"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
NUMPY = "/numpy"
SHARED = "/shared"
"""Memory that processes share lies here, in files without names: what it holds is exactly known and
limited.
"""
OOM_SCORE = 900
"""If memory runs out, programs are ended before the lab."""
PACKAGES = {"bwrap": "bubblewrap", "choom": "util-linux", "setpriv": "util-linux"}
"""Debian's names for what brings the tools."""

ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",
    "LC_ALL": "C.UTF-8",
    # the same set order, and so the same verdict, whenever an answer is graded again
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "MALLOC_ARENA_MAX": "2",  # every arena reserves address space, which is limited
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""The complete environment of bubblewrap: a program can read it in /proc/1/environ, despite
--clearenv.
"""


@dataclass(frozen=True, slots=True)
class Isolation:
    """How programs are isolated from this machine."""

    python: Path
    numpy: Path | None
    """A folder that holds numpy for this Python, if the program may import it."""
    isolated: bool = True
    """Whether bubblewrap and the seccomp filter are used; otherwise only limits."""

    @property
    def prefix(self) -> Path | None:
        """Where the interpreter lies if that is outside of the system's folders."""
        if any(self.python.is_relative_to(folder) for folder in SYSTEM):
            return None
        return self.python.parents[1]

    def level(self, uid: OptionalInt) -> str:
        """How programs are isolated, in words."""
        if not self.isolated:
            return "none"
        return "bubblewrap+seccomp+rlimits" + ("" if uid is None else ", uid per slot")

    def numpy_folders(self) -> list[Path]:
        """The folders that a program may read to import numpy; none where it may not."""
        if self.numpy is None:
            return []
        return [path for path in (self.numpy / "numpy", self.numpy / "numpy.libs") if path.is_dir()]

    def numpy_inside(self) -> str | None:
        """The entry of sys.path under which the program finds numpy."""
        if self.numpy is None:
            return None
        return NUMPY if self.isolated else str(self.numpy)

    def command(self, text: str, uid: OptionalInt, limits: Limits) -> list[str]:
        """The command line of a sandbox. `text` is what its first process runs, `limits` size its
        folders."""
        python = [str(self.python), "-s", "-c", text]
        if not self.isolated:
            return python
        # inside, where /proc is read-only, the score cannot be changed
        command = [tool("choom"), "-n", str(OOM_SCORE), "--"]
        if uid is not None:
            ids = [f"--reuid={uid}", f"--regid={uid}"]
            command += [tool("setpriv"), *ids, "--clear-groups", "--no-new-privs"]
        return [*command, *self.bubblewrap(limits), *python]

    def bubblewrap(self, limits: Limits) -> list[str]:
        """The command, up to the program's own words, that runs a program behind bubblewrap."""
        command = [
            tool("bwrap"),
            "--unshare-user",
            "--unshare-all",
            "--die-with-parent",
            "--new-session",
            "--as-pid-1",
        ]
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
        command += ["--proc", "/proc", "--remount-ro", "/proc", "--tmpfs", "/dev"]
        for name in DEVICES:
            command += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
        for name, target in STREAMS.items():
            command += ["--symlink", f"/proc/self/{target}", f"/dev/{name}"]
        sizes = {"/tmp": limits.file_bytes, "/dev/shm": min(limits.file_bytes, 4 * MIB)}
        sizes[SHARED] = (
            limits.memory_bytes + MIB
        )  # a little more, so that who fills it is seen to be beyond the limit
        for path, size in sizes.items():
            command += ["--size", str(size), "--tmpfs", path]
        return [*command, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]


@functools.cache
def can_disable_userns() -> bool:
    """Whether this bubblewrap knows the option (since 0.8); seccomp refuses new namespaces in any
    case.
    """
    help_text = subprocess.run(
        [tool("bwrap"), "--help"], capture_output=True, text=True, check=False
    )
    return "--disable-userns" in help_text.stdout + help_text.stderr


def tool(name: str) -> str:
    """Where the user's PATH has it: the one that a sandbox is started with holds the system's
    folders only.
    """
    return shutil.which(name) or name


def why_missing() -> str | None:
    """What isolation lacks here before anything is tried, and the line that installs it."""
    needed = ["bwrap", "choom"]
    if os.geteuid() == 0:
        needed.append("setpriv")
    absent = [name for name in needed if shutil.which(name) is None]
    packages = " ".join(PACKAGES[name] for name in absent)
    return f"{' and '.join(absent)} not installed (apt-get install {packages})" if absent else None


def pythons() -> list[Path]:
    """Interpreters to try: the one under this process, then the system's.

    Not one whose prefix, all of which is shown inside, holds the home or the working folder.
    """
    this = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    version = f"python3.{sys.version_info.minor}"
    system = [Path("/usr/bin") / name for name in (version, "python3")]
    private = any(folder.is_relative_to(this.parents[1]) for folder in (Path.home(), Path.cwd()))
    candidates = [
        *([] if private and not this.is_relative_to("/usr") else [this]),
        *(p.resolve() for p in system if p.exists()),
    ]
    return list(dict.fromkeys(candidates))


def same_version(python: Path) -> bool:
    """Whether that interpreter is of this one's version, by its name."""
    return python.name.endswith(f"3.{sys.version_info.minor}")


def numpy_for(python: Path) -> Path | None:
    """The folder of this environment's numpy if that interpreter can import it, being of the same
    version.
    """
    spec = importlib.util.find_spec("numpy")
    if spec is None or spec.origin is None or not same_version(python):
        return None
    return Path(spec.origin).parents[1]
