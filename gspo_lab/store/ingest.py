"""From run folders to lab.db: the only code that writes the database.

    runs/<study>/study.json                          -> studies
    runs/<study>/<arm>/<seed>/run.json               -> runs
                              journal.jsonl          -> steps, updates, answers, statuses
                              evaluations/*/journal.jsonl -> answers, statuses (with `evaluation` set)

Each run is one transaction that holds its new rows *and* how far its files were read, so a kill at any moment loses
nothing and repeats nothing. Files whose size and time of change are known are not opened.
"""

import fcntl
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from gspo_lab import journal
from gspo_lab.errors import LabError
from gspo_lab.store import rows
from gspo_lab.store.database import NAME, transaction, writing
from gspo_lab.store.schema import RUNS, STUDIES


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What one ingest did: run folders seen, the ids of those with news, records read from their journals."""

    runs: int
    changed: tuple[str, ...]
    records: int


class Seen(NamedTuple):
    """A row of the table `files`, without its path."""

    size: int
    modified_ns: int
    offset: int
    head: str | None


def ingest(runs: Path) -> IngestReport:
    """Bring `runs/lab.db` up to date with every run folder. Cheap when nothing is new; safe to call at any time.

    Raises LabError if the database cannot be written or, after all that can be read has been, if a file cannot be.
    """
    with _alone(runs), writing(runs / NAME) as connection:
        return _take_in(connection, runs)


def ingest_run(runs: Path, run_id: str) -> IngestReport:
    """The same for one run and its study; what a conductor calls while the run's worker writes."""
    folder = runs / run_id
    if not (folder / "run.json").is_file():
        raise LabError(f"no run {run_id}: {folder}/run.json does not exist")
    with _alone(runs), writing(runs / NAME) as connection:
        seen = _seen(connection)
        _take_study(connection, runs, folder.parent.parent, seen)
        records = _take_run(connection, runs, folder, seen, _states(connection).get(run_id))
        return IngestReport(1, () if records is None else (run_id,), records or 0)


def rebuild(runs: Path) -> IngestReport:
    """Make the database again from the run folders, beside the old one, then put it in its place at once."""
    target, fresh = runs / NAME, runs / f".{NAME}.new"
    with _alone(runs):
        _remove(fresh)
        broken: LabError | None = None
        with writing(fresh) as connection:
            try:
                report = _take_in(connection, runs)
            except LabError as error:  # what can be read is kept all the same
                broken = error
        # A log left beside the new file would be replayed into it: fold it into the old file first, then drop it.
        with suppress(sqlite3.Error):
            old = sqlite3.connect(target, timeout=0)
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            old.close()
        for suffix in ("-wal", "-shm"):
            target.with_name(target.name + suffix).unlink(missing_ok=True)
        fresh.replace(target)
    if broken is not None:
        raise LabError(f"rebuilt without what cannot be read: {broken}", details=broken.details)
    return report


def _remove(database: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)


@contextmanager
def _alone(runs: Path) -> Iterator[None]:
    """Hold `runs/.lab.lock`; the system lets go of it when its holder dies."""
    if not runs.is_dir():
        raise LabError(f"no folder {runs}: run a study first, or say where the runs are")
    try:
        file = (runs / ".lab.lock").open("a")
    except OSError as error:
        raise LabError(f"{runs} cannot be written to ({error.strerror}): check who owns it") from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _take_in(connection: sqlite3.Connection, runs: Path) -> IngestReport:
    seen, states = _seen(connection), _states(connection)
    changed: list[str] = []
    present: set[str] = set()
    broken: list[LabError] = []
    records = 0
    for study in _folders(runs):
        try:
            _take_study(connection, runs, study, seen)
        except LabError as error:
            broken.append(error)
        for folder in _run_folders(study):
            run_id = folder.relative_to(runs).as_posix()
            present.add(run_id)
            try:
                count = _take_run(connection, runs, folder, seen, states.get(run_id))
            except LabError as error:
                broken.append(error)
                continue
            if count is not None:
                changed.append(run_id)
                records += count
    gone = [run_id for run_id, state in states.items() if run_id not in present and state != "missing"]
    _part_with(connection, runs, gone, seen)
    if len(broken) == 1:
        raise broken[0]
    if broken:
        raise LabError(f"{runs}: {len(broken)} files cannot be read", details=tuple(str(error) for error in broken))
    return IngestReport(len(present), (*changed, *gone), records)


def _part_with(connection: sqlite3.Connection, runs: Path, gone: list[str], seen: dict[str, Seen]) -> None:
    """Mark runs whose folder is gone, so that nothing counts them; forget studies whose declaration is gone."""
    declared = [name for name in seen if name.count("/") == 1]
    vanished = [name for name in declared if not (runs / name).is_file()]
    if gone or vanished:
        with transaction(connection):
            connection.executemany("UPDATE runs SET state = 'missing' WHERE run_id = ?", [(run,) for run in gone])
            connection.executemany("DELETE FROM files WHERE path = ?", [(name,) for name in vanished])
            studies = [(name.partition("/")[0],) for name in vanished]
            connection.executemany("DELETE FROM studies WHERE study = ?", studies)


def _run_folders(study: Path) -> Iterator[Path]:
    for arm in _folders(study):
        yield from (folder for folder in _folders(arm) if (folder / "run.json").is_file())


def _folders(parent: Path) -> list[Path]:
    """The folders in `parent` by name; names that begin with `_` or `.` (pilots, caches) are nobody's evidence."""
    with os.scandir(parent) as entries:
        names = [entry.name for entry in entries if entry.name[0] not in "_." and entry.is_dir()]
    return [parent / name for name in sorted(names)]


def _seen(connection: sqlite3.Connection) -> dict[str, Seen]:
    query = "SELECT path, size, modified_ns, offset, head FROM files"
    return {path: Seen(*rest) for path, *rest in connection.execute(query)}


def _states(connection: sqlite3.Connection) -> dict[str, str]:
    return dict(connection.execute("SELECT run_id, state FROM runs"))


def _take_study(connection: sqlite3.Connection, runs: Path, folder: Path, seen: dict[str, Seen]) -> None:
    path = folder / "study.json"
    now = _stamp(path)
    name = path.relative_to(runs).as_posix()
    if now is None or _unchanged(now, seen.get(name)):
        return
    text, content = _json_file(path)
    row = {
        "study": folder.name,
        "question": content.get("question"),
        "digest": content.get("digest"),
        "declared_at": _declared_at(content.get("created"), now.modified_ns / 1e9),
        "content": text,
    }
    with transaction(connection):
        rows.insert(connection, STUDIES, [tuple(row[column] for column in STUDIES.names)])
        _remember(connection, name, now)


def _declared_at(created: Any, otherwise: float) -> float:
    try:
        return datetime.fromisoformat(created).timestamp()
    except (TypeError, ValueError):
        return otherwise


def _take_run(
    connection: sqlite3.Connection, runs: Path, folder: Path, seen: dict[str, Seen], state: str | None
) -> int | None:
    """Take in what is new of one run: the number of records read, or None if nothing is new."""
    run_id = folder.relative_to(runs).as_posix()
    journals = {f"{run_id}/{journal.NAME}": ""}
    if (folder / "evaluations").is_dir():
        for evaluation in _folders(folder / "evaluations"):
            journals[f"{run_id}/evaluations/{evaluation.name}/{journal.NAME}"] = evaluation.name
    for name in seen:  # evaluations that were deleted since
        if name.startswith(f"{run_id}/evaluations/"):
            journals.setdefault(name, name.split("/")[-2])
    specification = f"{run_id}/run.json"
    stamps = {name: _stamp(runs / name) for name in (specification, *journals)}
    news = [name for name, stamp in stamps.items() if not _unchanged(stamp, seen.get(name))]
    if not news and state not in ("running", "interrupted", "missing"):
        return None
    # Asked before the journal is read: a worker that leaves in between has then already written its last words.
    alive = _held(folder / "lock")
    if not news and state == ("running" if alive else "interrupted"):
        return None
    records = 0
    with transaction(connection):
        if specification in news:
            _register(connection, run_id, runs / specification)
            _remember(connection, specification, stamps[specification])
        for name in news:
            if name != specification:
                records += _follow(connection, runs / name, name, run_id, journals[name], stamps[name], seen.get(name))
        rows.settle(connection, run_id, alive)
    return records


def _register(connection: sqlite3.Connection, run_id: str, path: Path) -> None:
    """A run's row from its run.json; the folder says which study and arm it is, so that a copied study is its own."""
    _, content = _json_file(path)
    study, arm, _ = run_id.split("/")
    try:
        settings = content["settings"]
        row = {
            "run_id": run_id,
            "study": study,
            "arm": arm,
            "seed": content["seed"],
            "state": "planned",
            "steps_planned": settings["steps"],
            "declared": rows.as_json(content["declared"]),
            "reference_bands": rows.as_json(content["reference_bands"]),
            "settings": rows.as_json(settings),
        }
    except (KeyError, TypeError) as error:
        raise LabError(
            f"{path} is no run specification ({error} is missing): delete its folder and run it again"
        ) from error
    try:
        rows.insert(connection, RUNS, [tuple(row.get(column) for column in RUNS.names)])
    except (sqlite3.IntegrityError, OverflowError) as error:
        raise LabError(f"{path} is no run specification ({error}): delete its folder and run it again") from error


def _follow(
    connection: sqlite3.Connection,
    path: Path,
    name: str,
    run_id: str,
    evaluation: str,
    now: Seen | None,
    before: Seen | None,
) -> int:
    """Take in a journal's new lines; from its start if it is not the file that was read before."""
    head = None if now is None else _first_line(path)
    offset = 0
    if before is not None:
        if now is not None and head == before.head and now.size >= before.offset:
            offset = before.offset
        else:
            rows.forget(connection, run_id, evaluation)
    if now is None:
        connection.execute("DELETE FROM files WHERE path = ?", (name,))
        return 0
    items, end = journal.read(path, offset)
    try:
        rows.apply(connection, run_id, evaluation, items)
    except (sqlite3.IntegrityError, OverflowError, KeyError, TypeError, ValueError) as error:
        raise LabError(f"{path} holds a record that fits no column ({error}); its engine wrote it wrongly") from error
    _remember(connection, name, now._replace(offset=end, head=head))
    return len(items)


def _remember(connection: sqlite3.Connection, name: str, seen: Seen | None) -> None:
    assert seen is not None
    connection.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", (name, *seen))


def _unchanged(now: Seen | None, before: Seen | None) -> bool:
    if now is None or before is None:
        return now is before
    return now.size == before.size and now.modified_ns == before.modified_ns


def _stamp(path: Path) -> Seen | None:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Seen(status.st_size, status.st_mtime_ns, status.st_size, None)


def _first_line(path: Path) -> str | None:
    with path.open("rb") as file:
        line = file.readline()
    return hashlib.sha256(line).hexdigest() if line.endswith(b"\n") else None


def _json_file(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text)
    except (OSError, ValueError) as error:
        raise LabError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise LabError(f"{path} must hold a JSON object")
    return text, content


def _held(path: Path) -> bool:
    """Whether some process holds the lock file. A shared lock for an instant is the only way to ask."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
