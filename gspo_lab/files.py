"""What every folder of the lab is kept by: files and folders that are whole or absent, and locks.

A lock is let go by the system when its holder dies, however it dies.
"""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gspo_lab.errors import LabError


@contextmanager
def whole(path: Path, *, shared: bool = False, lasting: bool = True) -> Iterator[Path]:
    """The path to write the file to: when the block ends it is on the disk and moved to `path`; if it fails, gone.

    A reader finds the old file or the new one, never a part. One process at a time, under a lock, except with `shared`,
    at the price of a left-over file wherever a writer is killed. What is not `lasting`, for it can be made again, is
    not waited for until the disk has it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{f'{os.getpid()}.' if shared else ''}partial")
    try:
        yield beside
        if lasting:
            _to_disk(beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """The same for a folder of files, which takes the place of a former one; the block makes the folder."""
    beside = path.with_name(f".{path.name}.partial")
    shutil.rmtree(beside, ignore_errors=True)
    yield beside
    for file in beside.rglob("*"):
        if file.is_file():
            _to_disk(file)
    shutil.rmtree(path, ignore_errors=True)
    beside.rename(path)


def _to_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def write_json(path: Path, data: Any) -> None:
    """Write JSON, whole."""
    with whole(path) as beside:
        beside.write_text(json.dumps(data, indent=1), encoding="utf-8")


def read_json(path: Path) -> Any:
    """The JSON of `write_json`; None where there is no such file."""
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise LabError(f"{path} is damaged ({error}): restore it from a copy, or move its folder away") from error


@contextmanager
def held(path: Path, refusal: str, patience_seconds: float = 0.5) -> Iterator[None]:
    """Hold the lock `path` alone. Raises LabError(refusal) if another process keeps it longer than the patience.

    The patience outlasts the moment for which `holder` tries the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        give_up = time.monotonic() + patience_seconds
        while not _taken(file.fileno(), fcntl.LOCK_EX):
            if time.monotonic() > give_up:
                raise LabError(f"{refusal} (process {path.read_text().strip() or 'unknown'})")
            time.sleep(0.05)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@contextmanager
def waited_for(path: Path) -> Iterator[None]:
    """Hold the lock `path` alone, however long another process keeps it. Its folder must be there."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def holder(path: Path) -> str | None:
    """The process id that holds the lock `path`, as text; None where nobody does."""
    try:
        with path.open("r") as file:
            # A shared lock for an instant is the only way to ask; two who ask at once do not see each other.
            return None if _taken(file.fileno(), fcntl.LOCK_SH) else file.read().strip() or "unknown"
    except FileNotFoundError:
        return None


def _taken(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
