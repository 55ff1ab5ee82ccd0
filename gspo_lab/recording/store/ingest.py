"""From run folders to lab.db: the only code that writes the database.

    runs/<study>/study.json                          -> studies
    runs/<study>/<arm>/<seed>/run.json               -> runs
                              journal.jsonl          -> steps, updates, answers, statuses
                              grades/journal.jsonl   -> grades
                              evaluations/<name>/evaluation.json       -> evaluations
                              evaluations/<name>/journal.jsonl         -> answers, statuses
                              evaluations/<name>/grades/journal.jsonl  -> grades
    runs/_subjects/<name>/subject.json               -> subjects
                          evaluations/, grades/      as in a run

A record's field is the column of that name in the table of its kind. Each run is one transaction
that holds its new rows *and* how far its files were read, so a kill at any moment loses nothing and
repeats nothing. Files whose size and time of change (the inode's) are known are not opened. A
journal that has grown is read from where the last ingest stopped, if the digest of the line there
is the same; else it is read anew.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from gspo_lab.common.atomic_files import lock_holder, wait_for_lock
from gspo_lab.common.errors import MAKE_ROOM, NO_ROOM, LabError
from gspo_lab.common.paths import (
    EVALUATION,
    LOCK,
    RUN,
    STUDY,
    SUBJECT,
    SUBJECTS,
    database_lock,
    database_of,
)
from gspo_lab.common.plain_data import JsonMapping, JsonObject, OptionalFloat, OptionalInt, Strings
from gspo_lab.common.states import STARTED, State
from gspo_lab.recording import journal
from gspo_lab.recording.journal import digest_before
from gspo_lab.recording.records import RECORDS
from gspo_lab.recording.runfolder import JournalFolder, same_run
from gspo_lab.recording.store import run_files
from gspo_lab.recording.store.database import beyond_reading, transaction, writing
from gspo_lab.recording.store.run_files import FileRow, RecordFile
from gspo_lab.recording.store.run_row import (
    NO_SPECIFICATION,
    RUN_AGAIN,
    STATE_COLUMNS,
    as_json,
    run_row,
    run_state,
)
from gspo_lab.recording.store.schema import (
    DAMAGED,
    EVALUATIONS,
    RECORD_TABLES,
    RUNS,
    STATUSES,
    STUDIES,
    SUBJECT_ROWS,
    TableSpec,
    quoted,
)

COPY = "restore it from a copy"
TABLES_OF_JSON = {
    STUDY: (STUDIES, "no study of this lab", COPY),
    RUN: (RUNS, NO_SPECIFICATION, RUN_AGAIN),
    EVALUATION: (EVALUATIONS, "no evaluation", COPY),
    SUBJECT: (SUBJECT_ROWS, "no subject", COPY),
}
"""By a JSON file's name: its row's table, what to call a file that does not fit, the remedy."""

LOGS = ("-wal", "-shm")
"""What SQLite keeps beside a database while it is open, and after a kill."""


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What one ingest did: how many folders of runs and subjects it saw, the ids of those that
    changed, and how many records it read.
    """

    runs: int
    changed: Strings
    records: int
    damaged: Strings = ()
    """A message about each journal with unreadable lines, those of earlier ingests included."""
    replaced: Path | None = None
    """Where `rebuild` keeps the damaged database that it has replaced."""
    edited: Strings = ()
    """The runs whose records `rebuild` found changed in the old database, not in their files."""


def ingest(runs: Path, *, patience_seconds: OptionalFloat = None) -> IngestReport:
    """Bring `runs/lab.db` up to date with every run folder. Cheap when nothing is new; safe to call
    at any time.

    Raises LabError if the database cannot be written, or a file cannot be read; then all other
    files have been. Raises InUse if another process writes the database for longer than
    `patience_seconds`; None waits for it.
    """
    with _database_lock(runs, patience_seconds), writing(database_of(runs)) as connection:
        return _ingest_all(connection, runs)


def ingest_apart(runs: Path, database: Path) -> IngestReport:
    """Read run folders into a database elsewhere that only the caller uses; nothing is written
    under `runs`.
    """
    with writing(database) as connection:
        return _ingest_all(connection, runs)


def rebuild(runs: Path) -> IngestReport:
    """Make the database again from the run folders, and replace the old one in one step.

    A database of another program is refused; one that is damaged is kept beside the new one.
    """
    target = database_of(runs)
    fresh = target.with_name(f".{target.name}.new")
    with _database_lock(runs):
        damaged = target.exists() and beyond_reading(target)
        for suffix in ("", *LOGS):
            fresh.with_name(fresh.name + suffix).unlink(missing_ok=True)
        broken: LabError | None = None
        with writing(fresh) as connection:
            try:
                report = _ingest_all(connection, runs)
            except LabError as error:  # what can be read is kept all the same
                broken = error
            edited = () if damaged else _edited(connection, target)
        backup = _move_to_backup(target) if damaged else None
        # A log left beside the new file would be replayed into it: fold it into the old file first,
        # then drop it.
        if backup is None:
            with suppress(sqlite3.Error), closing(sqlite3.connect(target, timeout=0)) as old:
                old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for suffix in LOGS:
            target.with_name(target.name + suffix).unlink(missing_ok=True)
        fresh.replace(target)
    if broken is not None:
        notes = () if backup is None else (f"the damaged database is kept as {backup}",)
        raise LabError(
            f"rebuilt without what cannot be read: {broken}", details=(*notes, *broken.details)
        )
    return replace(report, replaced=backup, edited=edited)


def _edited(connection: sqlite3.Connection, old: Path) -> Strings:
    """The runs whose records differ in the `old` database, though their files have not changed
    since. Empty where it has other tables or columns."""
    if not old.exists():
        return ()
    runs: set[str] = set()
    connection.execute("ATTACH ? AS old", (str(old),))
    try:
        for table in RECORD_TABLES.values():
            for database, other in (("old", "main"), ("main", "old")):
                rows = connection.execute(
                    f"SELECT DISTINCT run_id FROM (SELECT * FROM {database}.{table.name}"
                    f" EXCEPT SELECT * FROM {other}.{table.name})"
                )
                runs.update(run for (run,) in rows)
        changed = connection.execute(
            "SELECT path FROM main.files WHERE (path, size, modified_ns) NOT IN"
            " (SELECT path, size, modified_ns FROM old.files)"
        ).fetchall()
        present = {run for (run,) in connection.execute("SELECT run_id FROM main.runs")}
        for (path,) in changed:
            runs -= {run for run in runs if path.startswith(f"{run}/")}
        return tuple(sorted(runs & present))
    except sqlite3.Error:
        return ()
    finally:
        connection.execute("DETACH old")


def _move_to_backup(database: Path) -> Path:
    """Move a database and its logs to the first free name beside it."""
    names = (database.with_name(f"{database.name}.{number}.bak") for number in count(1))
    backup = next(path for path in names if not path.exists())
    for suffix in (*LOGS, ""):
        with suppress(FileNotFoundError):
            database.with_name(database.name + suffix).rename(
                backup.with_name(backup.name + suffix)
            )
    return backup


@contextmanager
def _database_lock(runs: Path, patience_seconds: OptionalFloat = None) -> Iterator[None]:
    """Hold the database's lock, waiting for whoever has it."""
    if not runs.is_dir():
        raise LabError(f"no folder {runs}: run a study first, or say where the runs are")
    lock = database_lock(database_of(runs))
    with ExitStack() as stack:
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(wait_for_lock(lock, patience_seconds=patience_seconds))
        except OSError as error:
            remedy = MAKE_ROOM if error.errno in NO_ROOM else "check who owns it"
            raise LabError(
                f"{lock} cannot be written to ({error.strerror or error}): {remedy}"
            ) from error
        yield


def _ingest_all(connection: sqlite3.Connection, runs: Path) -> IngestReport:
    file_rows = run_files.all_seen(connection)
    states = dict(connection.execute("SELECT run_id, state FROM runs"))
    seen_by_run = run_files.by_folder(file_rows)
    changed: list[str] = []
    present: set[str] = set()
    broken: list[LabError] = []
    damaged: list[str] = []
    records = 0
    for study in run_files.folders(runs):
        path = study / STUDY
        name = f"{study.name}/{STUDY}"
        declaration = run_files.stamp(path)
        try:
            if declaration is not None and not run_files.unchanged(
                declaration, file_rows.get(name)
            ):
                with transaction(connection):
                    _insert_json_file(connection, path, name, {"study": study.name}, declaration)
        except LabError as error:
            broken.append(error)
        specified, unspecified = run_files.run_folders(study)
        present |= {folder.relative_to(runs).as_posix() for folder in specified}
        damaged += [f"{folder / RUN} {run_files.NO_RUN}" for folder in unspecified]
    subjects = {
        f"{SUBJECTS}/{subject.name}"
        for subject in run_files.folders(runs / SUBJECTS)
        if (subject / SUBJECT).is_file()
    }
    for run_id in sorted(present | subjects):
        try:
            count = take_files(
                connection, runs, run_id, seen_by_run.get(run_id, {}), states.get(run_id)
            )
        except LabError as error:
            broken.append(error)
            continue
        if count is not None:
            changed.append(run_id)
            records += count
    gone = [
        run_id
        for run_id, state in states.items()
        if run_id not in present and state != State.MISSING
    ]
    _mark_missing(connection, runs, gone, file_rows)
    gone += _delete_subjects(connection, subjects)
    if len(broken) == 1:
        raise broken[0]
    if broken:
        raise LabError(
            f"{runs}: {len(broken)} files cannot be read",
            details=tuple(str(error) for error in broken),
        )
    return IngestReport(
        len(present | subjects),
        (*changed, *gone),
        records,
        (*damaged, *run_files.damage_messages(connection, runs)),
    )


def _mark_missing(
    connection: sqlite3.Connection, runs: Path, gone: list[str], file_rows: dict[str, FileRow]
) -> None:
    """Mark runs whose folder is gone as missing; delete studies whose declaration is gone."""
    declared = [name for name in file_rows if name.count("/") == 1]
    vanished = [name for name in declared if not (runs / name).is_file()]
    if gone or vanished:
        with transaction(connection):
            connection.executemany(
                "UPDATE runs SET state = ? WHERE run_id = ?", [(State.MISSING, run) for run in gone]
            )
            connection.executemany(
                "DELETE FROM files WHERE path = ?", [(name,) for name in vanished]
            )
            studies = [(name.partition("/")[0],) for name in vanished]
            connection.executemany("DELETE FROM studies WHERE study = ?", studies)


def _delete_subjects(connection: sqlite3.Connection, present: set[str]) -> list[str]:
    """Delete the rows of subjects whose folder is gone; returns their ids."""
    subjects = {run_id for (run_id,) in connection.execute("SELECT run_id FROM subjects")}
    gone = sorted(subjects - present)
    for run_id in gone:
        with transaction(connection):
            for table in ("subjects", "evaluations", "answers", "statuses", "grades", "damaged"):
                connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))
            connection.execute(
                "DELETE FROM files WHERE substr(path, 1, ?) = ?", (len(run_id) + 1, run_id + "/")
            )
    return gone


def take_files(
    connection: sqlite3.Connection,
    runs: Path,
    run_id: str,
    file_rows: dict[str, FileRow],
    state: str | None,
) -> OptionalInt:
    """Read what is new of a run or a subject. Returns how many records are new; None if nothing is.

    `state` is the run's state in the database.
    """
    record_files = run_files.sources(runs, run_id, file_rows)
    stamps = {name: run_files.stamp(runs / name) for name in record_files}
    changed = {
        name: stamp
        for name, stamp in stamps.items()
        if not run_files.unchanged(stamp, file_rows.get(name))
    }
    subject = run_files.is_subject(run_id)
    if not changed and (subject or state not in (State.RUNNING, State.INTERRUPTED, State.MISSING)):
        return None
    # Check for a worker before reading the journal: one that leaves in between has then written its
    # last status.
    alive = not subject and lock_holder(runs / run_id / LOCK) is not None
    if not changed and state == (State.RUNNING if alive else State.INTERRUPTED):
        return None
    records = 0
    with transaction(connection):
        for name, stamp in changed.items():
            source = record_files[name]
            if source.part not in TABLES_OF_JSON:
                records += _read_journal(
                    connection, runs / name, name, source, stamp, file_rows.get(name)
                )
                continue
            if source.part == EVALUATION:
                key = (run_id, source.evaluation)
                connection.execute(
                    "DELETE FROM evaluations WHERE run_id = ? AND evaluation = ?", key
                )
            _insert_json_file(
                connection,
                runs / name,
                name,
                {"run_id": run_id, "evaluation": source.evaluation},
                stamp,
            )
        if not subject:
            write_run_state(connection, run_id, alive)
    return records


def _insert_json_file(
    connection: sqlite3.Connection,
    path: Path,
    name: str,
    identity: JsonMapping,
    present: FileRow | None,
) -> None:
    """Insert the row of a JSON file. LabError where it does not fit its table."""
    run_files.record_progress(connection, name, present)
    if present is None:
        return
    table, kind, mend = TABLES_OF_JSON[path.name]
    if table is RUNS:
        row = run_row(path, identity["run_id"])
    else:
        text, content = run_files.json_text(path)
        row = {**content, **identity, "content": text}
    if table is STUDIES:
        row["declared_at"] = present.modified_ns / 1e9
        with suppress(KeyError, TypeError, ValueError):
            row["declared_at"] = datetime.fromisoformat(row["created"]).timestamp()
    try:
        insert(connection, table, [tuple(map(row.get, table.names))])
    except UNFIT as error:
        raise LabError(f"{path} is {kind} ({error}): {mend}") from error


def _belongs_to_another(path: Path, source: RecordFile) -> bool:
    """Whether a journal of answers or grades belongs to another run, by its first line."""
    owner = JournalFolder(path.parent).recorded_for()
    return isinstance(owner, str) and not same_run(owner, source.run_id)


def _read_journal(
    connection: sqlite3.Connection,
    path: Path,
    name: str,
    source: RecordFile,
    present: FileRow | None,
    former: FileRow | None,
) -> int:
    """Read a journal's new lines, or all lines if it is another file than before."""
    head = None if present is None else run_files.first_line(path)
    offset = 0
    if former is not None:
        # Read anew a journal that was damaged, since it may be repaired, or whose old part changed.
        undamaged = (
            connection.execute("SELECT 1 FROM damaged WHERE path = ?", (name,)).fetchone() is None
        )
        grown = present is not None and present.size > former.size and present.size >= former.offset
        if (
            grown
            and undamaged
            and head == former.head
            and former.tail in (None, digest_before(path, former.offset))
        ):
            offset = former.offset
        else:
            delete_rows(connection, source)
    if offset == 0:
        connection.execute("DELETE FROM damaged WHERE path = ?", (name,))
    if present is None:
        if source.part == "run" and former is not None and former.size:
            insert(connection, DAMAGED, [(name, 1, source.run_id, run_files.END_LOST)])
        run_files.record_progress(connection, name, None)
        return 0
    if source.part != "run" and offset == 0 and _belongs_to_another(path, source):
        insert(connection, DAMAGED, [(name, 1, source.run_id, run_files.FOREIGN)])
        run_files.record_progress(
            connection, name, present._replace(offset=present.size, head=head)
        )
        return 0
    lines = journal.JournalReader(path, offset)
    try:
        add_records(connection, source, lines)
    except UNFIT as error:
        raise LabError(
            f"{path} holds a record that fits no column ({error}); its engine wrote it wrongly"
        ) from error
    damaged = [
        (name, journal.line_number(path, line.at), source.run_id, int(line.gap))
        for line in lines.damaged
    ]
    shorter = former is not None and present.size < former.size and head in (None, former.head)
    # Lines lost in the middle leave a gap and the same end. A journal that was written anew ends
    # with a seal.
    ended = former is not None and former.tail in (None, digest_before(path, lines.end))
    if shorter and not ended and not journal.sealed(path):
        damaged.append(
            (name, journal.line_number(path, lines.end), source.run_id, run_files.END_LOST)
        )
    insert(connection, DAMAGED, damaged)
    run_files.record_progress(
        connection,
        name,
        present._replace(offset=lines.end, head=head, tail=digest_before(path, lines.end)),
    )
    return lines.count


TABLE_OF = {kind: RECORD_TABLES[record.table] for kind, record in RECORDS.items()}
JSON_OF = {
    table.name: tuple(c.name for c in table.columns if c.json) for table in RECORD_TABLES.values()
}
COUNTED = tuple(name for name, table in RECORD_TABLES.items() if "position" in table.key)
"""Tables whose rows are kept in the order of their journal."""
OF_THE_RUN = ("steps", "updates")
LOGGED = "logged_scores"
FILLS = {
    "run": (*OF_THE_RUN, "answers", LOGGED, "statuses"),
    "evaluation": ("answers", "statuses"),
    "grades": ("grades",),
}
"""The tables that a journal fills, by what it is the journal of."""

AT_ONCE = 1000
"""Rows of a table that are inserted together; no more are held, however long a journal is."""

UNFIT = (
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    KeyError,
    TypeError,
    ValueError,
    RecursionError,
)
"""The errors of inserting a value that does not fit its column."""


def add_records(
    connection: sqlite3.Connection, source: RecordFile, items: Iterable[JsonObject]
) -> None:
    """Add a journal's records in their order; a later record replaces an earlier one with the same
    key.

    `started` at step k voids what the journal held of later moments (`RunStatus`).
    """
    run_id, evaluation, _ = source
    positions = {}
    for name in COUNTED:
        query = (
            f"SELECT COALESCE(MAX(position) + 1, 0) FROM {name} WHERE run_id = ? AND evaluation = ?"
        )
        positions[name] = connection.execute(query, (run_id, evaluation)).fetchone()[0]
    waiting: dict[str, list[tuple[Any, ...]]] = {name: [] for name in RECORD_TABLES}
    for table, row, start in as_rows(source, items, positions):
        if start is not None:
            _flush(connection, waiting)
            _void(connection, run_id, evaluation, start)
        rows = waiting[table.name]
        rows.append(row)
        if len(rows) == AT_ONCE:
            _flush(connection, {table.name: rows})
    _flush(connection, waiting)


def as_rows(
    source: RecordFile, items: Iterable[JsonObject], positions: dict[str, int]
) -> Iterator[tuple[TableSpec, tuple[Any, ...], OptionalInt]]:
    """A journal's records as rows with their tables, and of each start the step that it begins at.

    Unknown kinds are left out, and so is what a journal of that part has no say in: steps and
    updates in an evaluation's. `positions` holds the next row's of each counted table.
    """
    run_id, evaluation, part = source
    identity = {"run_id": run_id, "evaluation": evaluation}
    for item in items:
        table = TABLE_OF.get(item.get("kind", ""))
        if table is None or table.name not in FILLS[part]:
            continue
        start = item["step"] if table is STATUSES and item.get("state") == STARTED else None
        if table.name in positions:
            item["position"] = positions[table.name]
            positions[table.name] += 1
        item.update(identity)
        for name in JSON_OF[table.name]:
            if item.get(name) is not None:
                item[name] = as_json(item[name])
        yield table, tuple(map(item.get, table.names)), start


def insert(
    connection: sqlite3.Connection, table: TableSpec, values: Sequence[tuple[Any, ...]]
) -> None:
    """Insert or replace rows whose values stand in the order of the table's description."""
    if not values:
        return
    values_ = ", ".join("?" * len(table.names))
    statement = f"INSERT OR REPLACE INTO {table.name} ({quoted(table.names)}) VALUES ({values_})"
    try:
        connection.executemany(statement, values)
    except (
        UnicodeEncodeError
    ):  # half a surrogate pair in a model's text is no Unicode; '?' takes its place
        connection.executemany(statement, [tuple(map(_encodable, row)) for row in values])


def delete_rows(connection: sqlite3.Connection, source: RecordFile) -> None:
    """Remove every row that came from one journal."""
    for name in FILLS[source.part]:
        allowed = name in (*OF_THE_RUN, LOGGED)
        where, values = ("", ()) if allowed else (" AND evaluation = ?", (source.evaluation,))
        connection.execute(f"DELETE FROM {name} WHERE run_id = ?{where}", (source.run_id, *values))


def write_run_state(connection: sqlite3.Connection, run_id: str, alive: bool) -> None:
    """Write into the table `runs` where the run stands, from its statuses; `alive`: a worker holds
    its lock.
    """
    query = (
        f"SELECT {quoted(STATE_COLUMNS)} FROM statuses WHERE run_id = ? AND evaluation = '' ORDER"
        " BY position"
    )
    statuses = connection.execute(query, (run_id,)).fetchall()
    ends = "SELECT COALESCE(MAX(step), -1) FROM steps WHERE run_id = ?"
    ((last_step,),) = connection.execute(ends, (run_id,))
    columns = run_state(statuses, last_step, alive=alive)
    assignments = ", ".join(f"{name} = ?" for name in columns)
    connection.execute(
        f"UPDATE runs SET {assignments} WHERE run_id = ?", (*columns.values(), run_id)
    )


def _void(connection: sqlite3.Connection, run_id: str, evaluation: str, step: int) -> None:
    if not evaluation:
        for name in OF_THE_RUN:
            connection.execute(f"DELETE FROM {name} WHERE run_id = ? AND step >= ?", (run_id, step))
        connection.execute(f"DELETE FROM {LOGGED} WHERE run_id = ? AND step > ?", (run_id, step))
    connection.execute(
        "DELETE FROM answers WHERE run_id = ? AND evaluation = ? AND (step > ? OR (step = ? AND"
        " bench = 'rollout'))",
        (run_id, evaluation, step, step),
    )


def _flush(connection: sqlite3.Connection, waiting: dict[str, list[tuple[Any, ...]]]) -> None:
    for name, values in waiting.items():
        insert(connection, RECORD_TABLES[name], values)
        values.clear()


def _encodable(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
