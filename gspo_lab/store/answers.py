"""A study's answers problem by problem, with the grades in force; texts only of the few problems that are asked for."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gspo_lab.store.schema import ANSWERS, IN_ORDER, WITH_GRADES, in_force

if TYPE_CHECKING:
    from pandas import DataFrame

    from gspo_lab.store.evidence import Evidence

OF_ONE_SEED = "evaluation = ? AND bench = ? AND step = ? AND sample = 0 AND seed = ?"


def grades(evidence: "Evidence", study: str, bench: str, steps: Sequence[int], evaluation: str = "") -> "DataFrame":
    """arm, seed, step, problem, sample, correct (NaN: not graded) of all runs' answers, in no order."""
    marks = ", ".join("?" * len(steps))
    return evidence.select(
        study,
        f"SELECT arm, seed, step, problem, sample, {in_force('correct')} "
        f"FROM chosen JOIN answers USING (run_id) {WITH_GRADES} "
        f"WHERE evaluation = ? AND bench = ? AND step IN ({marks})",
        evaluation,
        bench,
        *steps,
    )


def first_answers(
    evidence: "Evidence", study: str, bench: str, step: int, seed: int, evaluation: str = ""
) -> "DataFrame":
    """arm, problem, correct, truncated, tokens of the first answer to each problem by the runs of one seed."""
    return evidence.select(
        study,
        f"SELECT arm, problem, {in_force('correct')}, truncated, tokens "
        f"FROM chosen JOIN answers USING (run_id) {WITH_GRADES} WHERE {OF_ONE_SEED} ORDER BY {IN_ORDER}, problem",
        *(evaluation, bench, step, seed),
    )


def transcripts(
    evidence: "Evidence", study: str, bench: str, step: int, seed: int, problems: Sequence[str], evaluation: str = ""
) -> list[dict[str, Any]]:
    """arm and every column of the first answers to some problems, with their texts."""
    columns = [name for name in ANSWERS.names if name not in ("run_id", "evaluation", "bench", "step", "sample")]
    frame = evidence.select(
        study,
        f"SELECT arm, {', '.join(map(in_force, columns))} FROM chosen JOIN answers USING (run_id) {WITH_GRADES} "
        f"WHERE {OF_ONE_SEED} AND problem IN ({', '.join('?' * len(problems))}) ORDER BY {IN_ORDER}",
        *(evaluation, bench, step, seed, *problems),
    )
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{str(name): entry for name, entry in row.items()} for row in rows]
