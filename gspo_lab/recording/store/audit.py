"""The audit of a study's files and its database: every line is read again.

The code of `ingest` reads the files into a temporary database, which is then compared row by row.
That takes about as long as `rebuild`.
"""

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
from gspo_lab.common.plain_data import JsonMapping
from gspo_lab.recording.journal import from_end, sealed
from gspo_lab.recording.records import RunStatus
from gspo_lab.recording.store.database import nowhere, transaction
from gspo_lab.recording.store.ingest import take_files
from gspo_lab.recording.store.run_files import END_LOST, PLACES, json_file, run_folders
from gspo_lab.recording.store.schema import EVALUATIONS, RECORD_TABLES, RUNS, TableSpec, quoted

Read = Callable[[str, Sequence[Any]], Iterator[tuple[Any, ...]]]
"""(query, values) to rows of the database under audit: `Evidence.iter_rows`."""

TAKEN = (RUNS, EVALUATIONS, *RECORD_TABLES.values())
"""The tables that a run's files fill."""
COUNTED = "SELECT " + ", ".join(f"(SELECT COUNT(*) FROM {table.name})" for table in TAKEN)


def study_at_fault(folder: Path, study: str, stored: JsonMapping) -> str | None:
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
    row_counts: list[dict[str, int]] = [
        dict(read(f"SELECT run_id, COUNT(*) FROM {table.name} GROUP BY 1", ())) for table in TAKEN
    ]
    with nowhere() as connection:
        for run in runs:
            if lock_holder(folder / run / LOCK) is None:
                matches_seal = sealed(folder / run / JOURNAL)
                counts_of_run = [counts.get(run, 0) for counts in row_counts]
                faults = list(_ingested_again(read, folder, connection, run, counts_of_run))
                if matches_seal is False:
                    faults.insert(0, "its journal is not what its last word sealed")
                yield run, matches_seal, faults


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


def models_changed(home: Path, start: str | None) -> Iterator[str]:
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
    read: Read, folder: Path, connection: sqlite3.Connection, run: str, row_counts: Sequence[int]
) -> Iterator[str]:
    """`row_counts`: how many rows of TAKEN's tables the database has of the run."""
    try:
        take_files(connection, folder, run, {}, None)
    except LabError as error:
        yield str(error)
    broken = "SELECT path, line, COALESCE(gap, 0) FROM damaged"
    # That a journal was longer only the database knows.
    lost_ends = read(f"{broken} WHERE run_id = ? AND gap = {END_LOST}", (run,))
    for path, line, gap in sorted([*connection.execute(broken), *lost_ends]):
        yield path.removeprefix(f"{run}/") + PLACES[gap].format(line)
    for table, count, count_in_files in zip(
        TAKEN, row_counts, connection.execute(COUNTED).fetchone(), strict=True
    ):
        place = f": {count} where there are {count_in_files}" if count != count_in_files else None
        if place or (count and (place := _first_difference(read, connection, table, run))):
            yield f"the database's {table.name} are not those of its files{place}"
    with transaction(connection):
        for name in (*(table.name for table in TAKEN), "damaged", "files"):
            connection.execute(f"DELETE FROM {name}")


def _first_difference(
    read: Read, connection: sqlite3.Connection, table: TableSpec, run: str
) -> str | None:
    """The first row of a run in which the two databases differ, in words; None if they agree."""
    query = (
        f"SELECT {quoted(table.names)} FROM {table.name} WHERE run_id = ? ORDER BY"
        f" {quoted(table.key)}"
    )
    pairs = zip(read(query, (run,)), connection.execute(query, (run,)), strict=True)
    for row, (stored_row, row_in_files) in enumerate(pairs):
        if stored_row != row_in_files:
            names = [
                name
                for name, a, b in zip(table.names, stored_row, row_in_files, strict=True)
                if a != b
            ]
            return f": row {row}, {', '.join(names[:3])}"
    return None
