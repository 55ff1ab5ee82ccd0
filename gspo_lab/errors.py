"""What the user can fix: one line that says what is wrong, where, and what to do. The exit code is then 2."""

import errno


class LabError(Exception):
    """A user's mistake, or a missing thing that the user can provide. Bugs are other exceptions, with a traceback.

    The message is one line: what, where, what to do. Several mistakes found at once go in `details`, one line each.
    """

    def __init__(self, message: str, *, details: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.details = details


class InUse(LabError):
    """Another process holds what this one needs: the same may succeed later."""


class Crashed(LabError):
    """A program that the lab started has died. The worker then ends as if it had died itself, with exit code 1."""


class MissingExtra(LabError):
    """An optional package is needed and absent."""

    def __init__(self, package: str, extra: str, why: str) -> None:
        super().__init__(f"{why} needs the package {package}: pip install 'gspo-lab[{extra}]'")


THE_MACHINES = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP),
    *(errno.EIO, errno.EMFILE, errno.ENFILE, errno.ESTALE),
}
"""What a folder, a disk or the system's limits can refuse."""


def refused(error: OSError) -> LabError | None:
    """What the machine refuses, as the user's to mend; None for what is a bug."""
    if error.errno not in THE_MACHINES:
        return None
    return LabError(f"{error.filename or 'a file'} cannot be used: {error.strerror}")
