"""The audit of a study's files and its database: every line is read again.

The rows that `ingest` makes of a run's files are compared with those of the database. Where they
differ in anything, the code of `ingest` reads the files into a temporary database, which gives
values as SQLite stores them. What still differs there is a fault.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import Any

from gspo_lab.common.atomic_files import (
    check_digests,
    lock_holder,
    sha256_of,
    sums_digest,
)
from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import CHECKPOINTS, FINAL, JOURNAL, LOCK, RUN, STUDY
from gspo_lab.common.plain_data import JsonMapping, OptionalText
from gspo_lab.recording.journal import JournalReader, from_end, in_force, sealed
from gspo_lab.recording.records import RunStatus
from gspo_lab.recording.store.database import nowhere, transaction
from gspo_lab.recording.store.ingest import UNFIT, as_rows, take_files
from gspo_lab.recording.store.run_files import (
    END_LOST,
    PLACES,
    RecordFile,
    json_file,
    run_folders,
    sources,
)
from gspo_lab.recording.store.run_row import STATE_COLUMNS, run_row, run_state
from gspo_lab.recording.store.schema import (
    DAMAGED,
    EVALUATIONS,
    RECORD_TABLES,
    RUNS,
    STATUSES,
    TableSpec,
    quoted,
)

Read = Callable[[str, Sequence[Any]], Iterator[tuple[Any, ...]]]
"""(query, values) to rows of the database under audit: `Evidence.iter_rows`."""

TAKEN = (RUNS, EVALUATIONS, *RECORD_TABLES.values())
"""The tables that a run's files fill."""
SMALL_BYTES = 1 << 24
"""A journal of so many bytes is compared in memory; a longer one is not held there."""


def study_at_fault(folder: Path, study: str, stored: JsonMapping) -> OptionalText:
    """The fault of the database's copy `stored` of study.json; `folder` holds the studies'
    folders.
    """
    try:
        content = json_file(folder / study / STUDY)
    except LabError as error:
        return str(error)
    return None if content == stored else f"the database holds another {STUDY}"


def runs_at_fault(
    read: Read, folder: Path, runs: Sequence[str]
) -> Iterator[tuple[str, bool | None, list[str]]]:
    """For each run its id, whether its journal matches its seal (None: no seal), and its faults in
    words.

    Runs with a worker are left out, because the database lags behind them.
    """
    with ExitStack() as stack:
        connection = None
        for run in runs:
            if lock_holder(folder / run / LOCK) is None:
                matches_seal = sealed(folder / run / JOURNAL)
                faults = []
                if not _holds_rows_of_files(read, folder, run):
                    connection = connection or stack.enter_context(nowhere())
                    faults = list(_ingested_again(read, folder, connection, run))
                if matches_seal is False:
                    faults.insert(0, "its journal is not what its last word sealed")
                yield run, matches_seal, faults


def _holds_rows_of_files(read: Read, folder: Path, run: str) -> bool:
    """Whether the database's rows of a run are those of its files, in every value.

    False too where memory cannot tell: of a long or damaged journal, later evaluations or grades.
    """
    files = [folder / name for name in sources(folder, run, ()) if (folder / name).is_file()]
    if [path.name for path in files] != [RUN, JOURNAL] or files[1].stat().st_size > SMALL_BYTES:
        return False
    specification, journal = files
    reader = JournalReader(journal)
    rows: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
    try:
        items = in_force(reader)
        for table, row, _ in as_rows(RecordFile(run, "", "run"), items, {STATUSES.name: 0}):
            rows[table.name].append(row)
        statuses = [tuple(map(item.get, STATE_COLUMNS)) for item in items if "state" in item]
        last_step = max((step for _, step, *_ in rows["steps"]), default=-1)
        of_run = run_row(specification, run) | run_state(statuses, last_step)
        rows[RUNS.name].append(tuple(map(of_run.get, RUNS.names)))
        return not reader.damaged and all(
            _holds(read, table, run, rows[table.name]) for table in (*TAKEN, DAMAGED)
        )
    except (LabError, *UNFIT):
        return False


def _holds(read: Read, table: TableSpec, run: str, rows: Sequence[tuple[Any, ...]]) -> bool:
    """Whether a table's rows of a run, which its key tells apart, are these in any order."""
    stored = list(read(f"SELECT {quoted(table.names)} FROM {table.name} WHERE run_id = ?", (run,)))
    return len(stored) == len(rows) and set(stored) == set(rows)


def runs_left_out(folder: Path, study: str, runs: Collection[str]) -> Iterator[tuple[str, str]]:
    """The runs of a study's folder that the database's `runs` lack, and those without a journal: id
    and reason.
    """
    specified, unspecified = run_folders(folder / study)
    for place in unspecified:
        yield place.relative_to(folder).as_posix(), f"its {RUN} is missing"
    for place in specified:
        run = place.relative_to(folder).as_posix()
        if run not in runs:
            try:
                json_file(place / RUN)
            except LabError as error:
                yield run, str(error)
            else:
                yield run, "the database does not hold it"
        elif not (place / JOURNAL).is_file() and any((place / CHECKPOINTS).glob("*")):
            yield run, "its journal is missing, though it has checkpoints"


def journals_changed(folder: Path, digests: Mapping[str, str]) -> list[str]:
    """The ids of the runs whose journal exists and has another sha256 than in `digests`."""
    paths = {run: folder / run / JOURNAL for run in digests}
    return [
        run for run, path in paths.items() if path.is_file() and sha256_of(path) != digests[run]
    ]


def models_changed(home: Path, start: OptionalText) -> Iterator[str]:
    """The faults of the models of the run in `home`, which its journal names; `start`: its starting
    model's digest.
    """
    last = next(
        (item for item in from_end(home / JOURNAL) if item.get("kind") == RunStatus.kind), {}
    )
    try:
        began = json_file(home / RUN).get("warm_start")
    except LabError:  # what is wrong with the run's files is told elsewhere
        return
    models = [("trained model", home / CHECKPOINTS / FINAL, last.get("model"))]
    if isinstance(began, str):
        models.append(("starting model", Path(began), start))
    for kind, folder, recorded_digest in models:
        if recorded_digest is not None and folder.is_dir():
            try:
                check_digests(folder)
            except LabError as error:
                yield str(error)
            if sums_digest(folder) != recorded_digest:
                yield f"its {kind} {folder.name} is not the one that its journal names"


def _ingested_again(
    read: Read, folder: Path, connection: sqlite3.Connection, run: str
) -> Iterator[str]:
    try:
        take_files(connection, folder, run, {}, None)
    except LabError as error:
        yield str(error)
    broken = "SELECT path, line, COALESCE(gap, 0) FROM damaged"
    # That a journal was longer only the database knows.
    lost_ends = read(f"{broken} WHERE run_id = ? AND gap = {END_LOST}", (run,))
    for path, line, gap in sorted([*connection.execute(broken), *lost_ends]):
        yield path.removeprefix(f"{run}/") + PLACES[gap].format(line)
    for table in TAKEN:
        query = f"SELECT {quoted(table.names)} FROM {table.name} WHERE run_id = ? ORDER BY"
        rows = (
            source(f"{query} {quoted(table.key)}", (run,)) for source in (read, connection.execute)
        )
        for number, (row, row_in_files) in enumerate(zip_longest(*rows, fillvalue=())):
            if row != row_in_files:
                columns = zip(table.names, row, row_in_files, strict=False)
                names = [name for name, a, b in columns if a != b] or ["there and not here"]
                yield (
                    f"the database's {table.name} are not those of its files: row {number},"
                    f" {', '.join(names[:3])}"
                )
                break
    with transaction(connection):
        for name in (*(table.name for table in TAKEN), "damaged", "files"):
            connection.execute(f"DELETE FROM {name}")
