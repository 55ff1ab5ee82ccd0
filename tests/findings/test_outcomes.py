from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_lab import make_lab, right

from gspo_lab.claims import answer
from gspo_lab.conduct.summary import seen
from gspo_lab.findings.decision import decision
from gspo_lab.findings.outcomes import RunOutcome, outcomes
from gspo_lab.readings import Source
from gspo_lab.records import AnswerRecord, Record, StepRecord, UpdateRecord
from gspo_lab.store import Evidence
from gspo_lab.study import Run
from gspo_lab.words import flags

RIGHT = {0: 20, 4: 2, 8: 4, 12: 6}
"""Right answers of 20 by step: the start is the best of all and must not count."""


by_step = right(lambda run, step: RIGHT[step] / 20)


def first_outcome(database: Path) -> RunOutcome:
    with Evidence.open(database) as evidence:
        return outcomes(Source(evidence, "toy"), "addition")[0]


def test_the_final_score_is_the_mean_of_the_last_evaluations_without_the_start(tmp_path: Path) -> None:
    grpo = first_outcome(make_lab(tmp_path, seeds=1, change=by_step))
    assert (grpo.start, grpo.evaluations) == (1.0, 3)
    assert grpo.final == pytest.approx((0.1 + 0.2 + 0.3) / 3)
    assert grpo.gain == pytest.approx(0.2 - 1.0)


@pytest.mark.parametrize(
    ("broken", "last", "carried", "errors", "start", "best"),
    [(12, 0.2, 1, 20, 1.0, 1.0), (0, 0.3, 0, 0, None, 0.2)],
    ids=["the last one repeats the one before and is flagged", "a start takes no final score"],
)
def test_an_evaluation_that_could_not_be_graded(
    tmp_path: Path, broken: int, last: float, carried: int, errors: int, start: float | None, best: float
) -> None:
    def change(run: Run, record: Record) -> Record | None:
        record = by_step(run, record)
        if isinstance(record, AnswerRecord) and record.step == broken:
            return replace(record, correct=None, error="the grader broke")
        return record

    grpo = first_outcome(make_lab(tmp_path, seeds=1, change=change))
    assert (grpo.start, grpo.carried, grpo.errors) == (start, carried, errors)
    assert (grpo.final, grpo.best) == (pytest.approx((0.1 + 0.2 + last) / 3), pytest.approx(best))
    assert (grpo.gain is None) == (start is None)


def test_an_unfinished_run_has_no_final_score(tmp_path: Path) -> None:
    database = make_lab(tmp_path, seeds=1, change=by_step, until=lambda run: 9, end=lambda run: "stopped")
    grpo = first_outcome(database)
    assert grpo.final is None
    assert grpo.latest == pytest.approx(0.2)


@pytest.mark.parametrize("rewarded", [True, False])
def test_a_dead_model_has_collapsed_and_enters_no_verdict_unflagged(tmp_path: Path, rewarded: bool) -> None:
    def change(run: Run, record: Record) -> Record:
        dead = run.seed == 1 and run.arm == "gspo"
        if dead and isinstance(record, UpdateRecord) and record.step >= 9:
            return replace(record, nonfinite=1)
        if dead and isinstance(record, StepRecord):
            return replace(record, reward_mean=1.0 if rewarded else None)
        return record

    with Evidence.open(make_lab(tmp_path, change=change)) as evidence:
        found = Source(evidence, "toy")
        decided, shown = decision(found), seen(found, answer(found))
    (dead,) = [one for one in decided.ended if one.nonfinite]
    assert dead.nonfinite == 3 * 4  # steps 9, 10, 11
    assert (dead.state, dead.stability.collapse, dead.stability.cause) == ("finished", 9, "non-finite")
    assert flags(decided) == [
        "Collapsed and still counted: gspo seed 1.",
        "Updates that were not finite, skipped or of a dead model: gspo seed 1 (12).",
    ]
    assert shown[-2:] == flags(decided)
