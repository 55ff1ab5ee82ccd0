"""Whether a run's files are as they were written, and the database holds what they do: every line is read again.

The files are taken in once more, by the code that `ingest` is, into a database in memory; the two are then compared row
by row. That costs about what `rebuild` does.
"""

import sqlite3
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gspo_lab.errors import LabError
from gspo_lab.files import holder
from gspo_lab.journal import sealed
from gspo_lab.layout import JOURNAL, LOCK, STUDY
from gspo_lab.store.database import in_memory, transaction
from gspo_lab.store.files import json_file
from gspo_lab.store.ingest import take_run
from gspo_lab.store.schema import EVALUATIONS, RECORD_TABLES, RUNS, Table, quoted

if TYPE_CHECKING:
    from gspo_lab.store.evidence import Evidence

TAKEN = (RUNS, EVALUATIONS, *RECORD_TABLES.values())
"""The tables that a run's files fill."""


def study_at_fault(evidence: "Evidence", study: str) -> str | None:
    """What is wrong with the database's copy of study.json."""
    path = evidence.runs_folder / study / STUDY
    try:
        _, content = json_file(path)
    except LabError as error:
        return str(error)
    return None if content == evidence.study(study) else f"the database holds another {STUDY}"


def runs_at_fault(evidence: "Evidence", study: str) -> Iterator[tuple[str, bool | None, list[str]]]:
    """Of each run of a study: its id, whether its journal is what its last word sealed (None: it holds no seal), and
    what is wrong, in words. Runs that somebody is at work on are left out: the database lags behind them."""
    with in_memory() as connection:
        for run in evidence.chosen(study):
            folder = evidence.runs_folder / run.id
            if holder(folder / LOCK) is None:
                whole = sealed(folder / JOURNAL)
                broken = ["its journal is not what its last word sealed"] if whole is False else []
                yield run.id, whole, [*broken, *_taken_anew(evidence, connection, run.id)]


def _taken_anew(evidence: "Evidence", connection: sqlite3.Connection, run: str) -> Iterator[str]:
    runs = evidence.runs_folder
    try:
        take_run(connection, runs, runs / run, {}, None)
    except LabError as error:
        yield str(error)
    for path, line, gap in connection.execute("SELECT path, line, gap FROM damaged ORDER BY path, line"):
        where = path.removeprefix(f"{run}/")
        yield f"{where}: a line is missing before line {line}" if gap else f"{where}: line {line} is damaged"
    for table in TAKEN:
        if place := _parted(evidence, connection, table, run):
            yield f"the database's {table.name} are not those of its files{place}"
    with transaction(connection):
        for name in (*(table.name for table in TAKEN), "damaged", "files"):
            connection.execute(f"DELETE FROM {name}")


def _parted(evidence: "Evidence", connection: sqlite3.Connection, table: Table, run: str) -> str | None:
    """Where the two databases' rows of a run part, in words; None where they do not."""
    query = f"SELECT {quoted(table.names)} FROM {table.name} WHERE run_id = ? ORDER BY {quoted(table.key)}"
    ours, theirs = evidence.rows(query, (run,)), connection.execute(query, (run,)).fetchall()
    if ours == theirs:
        return None
    if len(ours) != len(theirs):
        return f": {len(ours)} where there are {len(theirs)}"
    row, one, other = next((row, a, b) for row, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
    names = [name for name, a, b in zip(table.names, one, other, strict=True) if a != b]
    return f": row {row}, {', '.join(names[:3])}"
