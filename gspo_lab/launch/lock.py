"""One process at a time: a lock on a file that the system lets go when its holder dies, however it dies."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gspo_lab.errors import LabError


@contextmanager
def held(path: Path, refusal: str, patience_seconds: float = 0.5) -> Iterator[None]:
    """Hold the lock `path` alone. Raises LabError(refusal) if another process keeps it longer than the patience.

    The patience outlasts the moment for which `holder` tries the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        give_up = time.monotonic() + patience_seconds
        while not _taken(file.fileno()):
            if time.monotonic() > give_up:
                raise LabError(f"{refusal} (process {path.read_text().strip() or 'unknown'})")
            time.sleep(0.05)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def holder(path: Path) -> str | None:
    """The process id that holds the lock `path`, as text; None where nobody does."""
    try:
        with path.open("r") as file:
            return None if _taken(file.fileno()) else file.read().strip() or "unknown"
    except FileNotFoundError:
        return None


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
