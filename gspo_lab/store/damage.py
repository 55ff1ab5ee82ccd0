"""What is damaged in journals, in words, for as long as what it held is missing."""

import sqlite3
from pathlib import Path

from gspo_lab.paths import EVALUATIONS
from gspo_lab.states import State

END_LOST = 2
"""Of the column `gap`: the journal was longer when it was read before."""
FOREIGN = 3
"""Of the column `gap`: the journal belongs to another run or subject, by its first line or its declaration."""
PLACES = {
    0: ", line {}: damaged and left out",
    1: ": a line is missing before line {}",
    FOREIGN: ": recorded for another run and left out",
    END_LOST: ": its end is gone or damaged, from line {} on",
}
"""By the column `gap`, behind the journal's name."""

NO_RUN = (
    "is missing, so that the run is missing from every number. Put the file back from a copy, or move its folder away"
)
"""Of run.json, where a journal lies beside its place."""

LINES = (
    "SELECT run_id, path, COALESCE(gap, 0), GROUP_CONCAT(line, ', ') "
    "FROM (SELECT path, line, run_id, gap FROM damaged ORDER BY path, line) "
    f"WHERE run_id NOT IN (SELECT run_id FROM runs WHERE state = '{State.MISSING}') GROUP BY 2, 3 ORDER BY 2, 3"
)
WHOLE = """
    SELECT COUNT(*) = json_array_length(content, '$.asked.problems') * json_extract(content, '$.asked.samples')
                      * MAX(1, (SELECT COUNT(*) FROM json_each(content, '$.subject.checkpoints')))
    FROM evaluations JOIN answers USING (run_id, evaluation) WHERE run_id = ? AND evaluation = ?"""
"""Whether an evaluation has every answer that it declares, of the two checkpoints of a run of either."""


def damage_messages(connection: sqlite3.Connection, runs: Path) -> tuple[str, ...]:
    """A line for each journal with missing records."""
    return tuple(
        f"{runs / path}{PLACES[gap].format(lines)}; what it recorded is missing from every number. "
        + ("The same gspo-lab eval asks it again" if path.split("/")[-3:-2] == [EVALUATIONS] else REMEDY)
        for run, path, gap, lines in connection.execute(LINES).fetchall()
        if not _asked_again(connection, run, path)
    )


REMEDY = "Put the file back from a copy, or delete its folder and make it again"


def _asked_again(connection: sqlite3.Connection, run: str, path: str) -> bool:
    """Whether the damaged answers of an evaluation have been asked for anew since."""
    *_, where, evaluation, _ = path.split("/")
    return where == EVALUATIONS and connection.execute(WHOLE, (run, evaluation)).fetchone() == (1,)
