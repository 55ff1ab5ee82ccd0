"""Atomic files and folders, and locks.

The system releases a lock when its holder dies. Other hosts that share the disk may not see that.
For them the lock's file names the holder's host, and its holder touches it regularly.
"""

import fcntl
import hashlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from gspo_lab.common.errors import InUse, LabError
from gspo_lab.common.paths import SEALED_FILES
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.common.text import visible

Entry = TypeVar("Entry")

BEAT_SECONDS = 30.0
SILENT_SECONDS = 300.0
"""How often a lock's file is touched, and after how long without that another host's holder counts
as gone.
"""


MOST_NAMED = 80
"""Characters of a lock's file that are read: a process and its host."""

_HELD: set[IO[Any]] = set()
"""The files that this process has locked."""


def _let_go() -> None:
    """Close the lock files in a forked child, which would hold the locks after their holder's
    death.
    """
    while _HELD:
        _HELD.pop().close()


os.register_at_fork(after_in_child=_let_go)


@contextmanager
def atomic_file(path: Path, *, shared: bool = False, lasting: bool = True) -> Iterator[Path]:
    """The path to write the file to. At the end of the block it is synced and moved to `path`; on
    failure deleted.

    A reader sees the old file or the new one, never a part. Only one process at a time may write,
    except with `shared`, which leaves a file behind when a writer is killed. Without `lasting` the
    file is not synced to disk.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    owner = f"{os.getpid()}." if shared else ""
    draft = path.with_name(f".{path.name}.{owner}partial")
    try:
        yield draft
        if lasting:
            _sync(draft)
        draft.replace(path)
        _sync(path.parent)
    except OSError as error:
        if (
            error.errno is not None and error.filename is None
        ):  # writing to a file that is open names none
            error.filename = str(path)
        raise
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """The path to make a folder at. At the end of the block it is synced and moved to `path`; on
    failure deleted.

    A reader sees a whole folder or none. The former folder is deleted just before the move, so a
    kill in between leaves neither. The next writer deletes what a killed one left.
    """
    draft = path.with_name(f".{path.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        yield draft
        for place in (*draft.rglob("*"), draft):
            _sync(place)
        shutil.rmtree(path, ignore_errors=True)
        draft.rename(path)
        _sync(path.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk, so that a move into it survives a power
    cut.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


SEAL = "sha256"
"""The entry with the digest of all other entries."""


def write_json(path: Path, data: Any, *, shared: bool = False) -> None:
    """Write JSON atomically, sealed where the file is one of SEALED_FILES; `shared`: see
    `atomic_file`.
    """
    if path.name in SEALED_FILES:
        data = {**data, SEAL: _digest(data)}
    with atomic_file(path, shared=shared) as draft:
        draft.write_text(as_text(data), encoding="utf-8")


def as_text(data: Any) -> str:
    """JSON as `write_json` writes it."""
    return json.dumps(data, indent=1)


def read_json(path: Path) -> JsonObject | None:
    """The JSON object of `write_json`; None where there is no such file."""
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise _damage(path, str(error)) from error
    if not isinstance(content, dict):
        raise _damage(path, "no JSON object")
    if is_seal_broken(path, content):
        raise _damage(path, BROKEN_SEAL)
    return content


BROKEN_SEAL = "it is not what its digest was taken of"


def is_seal_broken(path: Path, content: JsonObject) -> bool:
    """Whether the content of a sealed file is not what its digest was taken of."""
    return path.name in SEALED_FILES and content.get(SEAL) != _digest(content)


def _digest(content: JsonObject) -> str:
    unsealed = {key: value for key, value in content.items() if key != SEAL}
    return hashlib.sha256(json.dumps(unsealed, sort_keys=True).encode()).hexdigest()


def read_entry(path: Path, name: str, kind: type[Entry]) -> Entry | None:
    """One entry of that object; None without the file.

    LabError where the entry is missing or of another type.
    """
    content = read_json(path)
    if content is None:
        return None
    entry = content.get(name)
    if type(entry) is not kind:
        raise _damage(path, f"no {name}")
    return entry


def _damage(path: Path, why: str) -> LabError:
    return LabError(f"{path} is damaged ({why}): restore it from a copy, or move its folder away")


@contextmanager
def exclusive_lock(path: Path, refusal: str, patience_seconds: float = 0.5) -> Iterator[None]:
    """Hold the lock `path` alone. Raises InUse(refusal) if another process keeps it longer than the
    patience.

    The patience outlasts the moment for which `holder` tries the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        if not _lock_within(file, patience_seconds, path):
            raise InUse(f"{refusal} (process {_holder_in_file(path)[0] or 'unknown'})")
        stopped = threading.Event()
        threading.Thread(target=_beat, args=(path, stopped), daemon=True).start()
        try:
            with _named_holder(file):
                yield
        finally:
            stopped.set()


@contextmanager
def _named_holder(file: IO[Any]) -> Iterator[None]:
    """Name this process in the lock's file, for other hosts, which may not see the lock."""
    file.truncate(0)
    file.write(f"{os.getpid()} {_host()}")
    file.flush()
    _HELD.add(file)
    try:
        yield
    finally:
        if not file.closed:  # in a forked child
            file.truncate(0)
        _HELD.discard(file)


@contextmanager
def sole_writer(file: IO[Any], patience_seconds: float = 0.5) -> Iterator[bool]:
    """Lock an open file itself, so that deleting a lock file has no effect; yields whether the lock
    was free.
    """
    locked = _lock_within(file, patience_seconds)
    _HELD.add(file)
    try:
        yield locked
    finally:
        _HELD.discard(file)


WAIT_SECONDS = 2.0
"""A process that waits for a lock longer than this says who holds it."""


@contextmanager
def wait_for_lock(path: Path, *, patience_seconds: float | None = None) -> Iterator[None]:
    """Hold the lock `path`, whose folder must exist. After `WAIT_SECONDS` stderr says who holds it.

    Waits without limit, or raises InUse after `patience_seconds`.
    """
    with path.open("a+") as file:
        if not _lock_within(file, WAIT_SECONDS if patience_seconds is None else patience_seconds):
            holder = f"{path} is held by process {_holder_in_file(path)[0] or 'unknown'}"
            if patience_seconds is not None:
                raise InUse(holder)
            print(visible(f"gspo-lab: {holder}; waiting"), file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        with _named_holder(file):
            yield


def lock_holder(path: Path) -> str | None:
    """The process that holds the lock `path`, in words: "4711", or "4711 on HOST"; None for a free
    lock.

    On a shared disk another host may not see the system's lock. The host named in the file holds it
    as long as the file is touched. Clocks may differ by up to `SILENT_SECONDS`.
    """
    try:
        with path.open("r") as file:
            # A shared lock for an instant is the only way to ask; two who ask at once do not see
            # each other.
            return (
                _remote_holder(path)
                if _try_lock(file, fcntl.LOCK_SH)
                else _holder_in_file(path)[0] or "unknown"
            )
    except FileNotFoundError:
        return None


def _remote_holder(path: Path) -> str | None:
    """The holder of the lock on another host, by the name in its file and its heartbeat."""
    process, elsewhere = _holder_in_file(path)
    return process if elsewhere and time.time() - path.stat().st_mtime <= SILENT_SECONDS else None


def _holder_in_file(path: Path) -> tuple[str, bool]:
    """The process that a lock's file names, with its host if that is another one, and whether it
    is.
    """
    text = path.read_text(encoding="utf-8", errors="replace")[:MOST_NAMED]
    process, _, host = text.strip().partition(" ")
    return (f"{process} on {host}", True) if host not in ("", _host()) else (process, False)


def _host() -> str:
    return os.uname().nodename


def _beat(path: Path, stopped: threading.Event) -> None:
    while not stopped.wait(BEAT_SECONDS):
        with suppress(OSError):  # the folder may have been moved away
            os.utime(path)


def _lock_within(file: IO[Any], seconds: float, shared: Path | None = None) -> bool:
    """Whether an open file could be locked in time; `shared`: its path, if another host may hold it
    too.
    """
    give_up = time.monotonic() + seconds
    while not _try_lock(file, fcntl.LOCK_EX) or (shared is not None and _remote_holder(shared)):
        if time.monotonic() > give_up:
            return False
        time.sleep(0.05)
    return True


def _try_lock(file: IO[Any], operation: int) -> bool:
    try:
        fcntl.flock(file, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sha256_of(path: Path) -> str:
    """The digest of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


SUMS = "SHA256SUMS"
"""In a model folder written by gspo-lab: each file's digest, in the format of sha256sum."""


def write_sums(folder: Path) -> None:
    """Put the digests of a folder's files beside them."""
    text = "".join(
        f"{sha256_of(path)}  {path.name}\n" for path in sorted(folder.iterdir()) if path.is_file()
    )
    (folder / SUMS).write_text(text, encoding="utf-8")


def sums_digest(folder: Path) -> str | None:
    """sha256 of the list of a model folder's files and their digests; None for a folder without
    that list.
    """
    return sha256_of(folder / SUMS) if (folder / SUMS).is_file() else None


def check_digests(folder: Path) -> None:
    """LabError where a file differs from its digest in the folder; a folder without digests is
    accepted.
    """
    if not (folder / SUMS).is_file():
        return
    text = (folder / SUMS).read_text(encoding="utf-8", errors="replace")
    listed = [line.partition("  ")[::2] for line in text.splitlines()]
    files = ((folder / name, digest) for digest, name in listed)
    odd = next(
        (file for file, digest in files if not file.is_file() or sha256_of(file) != digest), None
    )
    if odd is not None or text != "".join(f"{digest}  {name}\n" for digest, name in listed):
        raise LabError(
            f"{odd or folder / SUMS} is not what {SUMS} beside it says: put it back from a copy, or"
            f" delete {SUMS} where it was meant to be changed; a warm start's folder can be"
            " deleted, and is made again"
        )


PIECES = 64
PIECE_BYTES = 1 << 16
"""How much of a large file of weights is read: training changes them everywhere."""


def folder_digest(folder: Path) -> str:
    """What tells a model folder from others: sha256 of its settings, its tokenizer and a sample of
    its weights.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".json", ".jinja", ".model", ".txt", ".safetensors", ".bin"):
            continue
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            if size <= PIECES * PIECE_BYTES:
                digest.update(file.read())
                continue
            for piece in range(PIECES):
                file.seek(piece * (size - PIECE_BYTES) // (PIECES - 1))
                digest.update(file.read(PIECE_BYTES))
    return digest.hexdigest()
