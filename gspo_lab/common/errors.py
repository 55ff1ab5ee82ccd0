"""Mistakes that the user can fix: one line with what is wrong, where, and what to do; exit code
2.
"""

import errno
from importlib.util import find_spec


class LabError(Exception):
    """A user's mistake, or a missing thing that the user can provide. Bugs are other exceptions,
    with a traceback.

    The message is one line: what, where, what to do. Several mistakes found at once go in
    `details`, one line each.
    """

    def __init__(self, message: str, *, details: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.details = details


class InUse(LabError):
    """Another process holds a lock; the same command may succeed later."""


class Crashed(LabError):
    """A program started by a worker has died. The worker then also ends with exit code 1."""


class MissingExtra(LabError):
    """An optional package is needed and absent."""

    def __init__(self, package: str, extra: str, why: str) -> None:
        super().__init__(f"{why} needs the package {package}: pip install 'gspo-lab[{extra}]'")


def require_package(package: str, extra: str, why: str, module: str | None = None) -> None:
    """MissingExtra where an optional package is absent; `module`: another name to import it by.

    Imports nothing.
    """
    spec = find_spec(module or package)
    if (
        spec is None or spec.origin is None
    ):  # without an origin it is only a folder of that name, as wandb's `wandb/`
        raise MissingExtra(package, extra, why)


THE_MACHINES = {
    getattr(errno, name)
    for name in (
        "EACCES",
        "EPERM",
        "EROFS",
        "ENOSPC",
        "EDQUOT",
        "EFBIG",
        "ENOTDIR",
        "EISDIR",
        "EEXIST",
        "ENAMETOOLONG",
        "ELOOP",
        "EIO",
        "EMFILE",
        "ENFILE",
        "ESTALE",
    )
}
"""Errors of folders, disks and the system's limits."""


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a full disk, a quota and a limit on the size of files."""
MAKE_ROOM = "make room and give the same command again, which goes on from there"


def refused(error: OSError) -> LabError | None:
    """The user's error behind an OSError of the machine; None for a bug."""
    if error.errno not in THE_MACHINES:
        return None
    line = f"{error.filename or 'a file'} cannot be used: {error.strerror}"
    return LabError(f"{line}; {MAKE_ROOM}" if error.errno in NO_ROOM else line)
