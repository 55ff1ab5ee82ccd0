"""Whether the steps and updates of a run are complete, their rates, and the digests of answers."""

from typing import TYPE_CHECKING

from gspo_lab.common.plain_data import OptionalText
from gspo_lab.recording.journal import ANSWERED, digest_of_answers, evaluation_key
from gspo_lab.recording.records import ROLLOUT
from gspo_lab.recording.store.schema import quoted

if TYPE_CHECKING:
    from gspo_lab.recording.store.evidence import Evidence


def first_missing(evidence: "Evidence", run: str, steps: int, updates: int | None) -> OptionalText:
    """What the rows of a run lack or have too much; None if they are complete.

    `steps` steps with `updates` updates each are due. With `updates` None the steps state how many
    updates they made.
    """
    if fault := _wrong_count(evidence, run, "steps", "0", steps, 1):
        return fault
    if updates is not None:
        return _wrong_count(evidence, run, "updates", "minibatch", steps, updates)
    query = (
        "SELECT (SELECT COUNT(*) FROM updates WHERE run_id = :run), MAX(updates_total) FROM steps"
        " WHERE run_id = :run"
    )
    count, due = evidence.rows(query, {"run": run})[0]
    return None if count == due else f"{count} updates, where its steps count {due}"


def _wrong_count(
    evidence: "Evidence", run: str, table: str, column: str, steps: int, rows_per_step: int
) -> OptionalText:
    """What a table lacks that should hold `rows_per_step` rows of each of `steps` steps."""
    query = f"SELECT COUNT(*), MIN(step), MAX(step), MAX({column}) FROM {table} WHERE run_id = ?"
    count, low, high, last = evidence.rows(query, (run,))[0]
    due = steps * rows_per_step
    expected = (due, 0, steps - 1, rows_per_step - 1) if steps else (0, None, None, None)
    if (count, low, high, last) == expected:
        return None
    return f"{count} {table} up to step {high}, where {due} up to step {steps - 1} are due"


def read_rates(evidence: "Evidence", run: str) -> list[tuple[int, float]]:
    """Step and learning rate of each update of a run that recorded its rate, in their order."""
    query = (
        "SELECT step, learning_rate FROM updates WHERE run_id = ? AND learning_rate IS NOT NULL"
        " ORDER BY step, minibatch"
    )
    return evidence.rows(query, (run,))


def answer_digests(evidence: "Evidence", run: str) -> dict[str, str]:
    """Per evaluation during training the digest of its answers in the database, with their first
    grades.
    """
    query = (
        f"SELECT bench, step, {quoted(ANSWERED)} FROM answers WHERE run_id = ? AND evaluation = ''"
        " AND bench <> ?"
    )
    grouped: dict[str, list[tuple[object, ...]]] = {}
    for bench, step, *row in evidence.rows(query, (run, ROLLOUT)):
        grouped.setdefault(evaluation_key(bench, step), []).append(tuple(row))
    return {key: digest_of_answers(rows) for key, rows in grouped.items()}
