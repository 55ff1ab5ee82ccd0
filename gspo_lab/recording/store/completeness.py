"""Whether the steps and updates of a run are complete, and the digests of its answers."""

from typing import TYPE_CHECKING

from gspo_lab.recording.journal import ANSWERED, digest_of_answers, evaluation_key
from gspo_lab.recording.records import ROLLOUT
from gspo_lab.recording.store.schema import quoted

if TYPE_CHECKING:
    from gspo_lab.recording.store.evidence import Evidence


def first_missing(evidence: "Evidence", run: str, steps: int, updates: int | None) -> str | None:
    """What `steps` steps with `updates` updates each lack or have too much; None if they are
    complete.

    With `updates` None the steps state how many updates they made.
    """
    for table, each, column in (("steps", 1, "0"), ("updates", updates, "minibatch")):
        if each is None:
            query = (
                "SELECT (SELECT COUNT(*) FROM updates WHERE run_id = :run), MAX(updates_total) FROM"
                " steps"
            )
            made, due = evidence.rows(f"{query} WHERE run_id = :run", {"run": run})[0]
            return None if made == due else f"{made} updates, where its steps count {due}"
        query = (
            f"SELECT COUNT(*), MIN(step), MAX(step), MAX({column}) FROM {table} WHERE run_id = ?"
        )
        count, low, high, last = evidence.rows(query, (run,))[0]
        if (count, low, high, last) != (
            (steps * each, 0, steps - 1, each - 1) if steps else (0, None, None, None)
        ):
            return (
                f"{count} {table} up to step {high}, where {steps * each} up to step {steps - 1}"
                " are due"
            )
    return None


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
