"""Other scores that decide: `verdict.primary = "NAME:reward"`, the mean reward, and `"NAME:pass@2"`."""

from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_lab import TWO_ARMS, make_lab

from gspo_lab.errors import LabError
from gspo_lab.findings.decision import decision
from gspo_lab.findings.outcomes import outcomes
from gspo_lab.readings import Source
from gspo_lab.readings.answers import answers_variance, benches, counted_wrong
from gspo_lab.readings.answers import tallies as tallies_of
from gspo_lab.records import AnswerRecord, Record
from gspo_lab.store import Evidence
from gspo_lab.study import Run, load_study

BY_REWARD = TWO_ARMS.replace("[arm.grpo]", '[verdict]\nprimary = "addition:reward"\n[arm.grpo]', 1)


def partial(run: Run, record: Record) -> Record:
    """Every answer earns a half (grpo) or three quarters (gspo) after the start, a quarter at it; none is correct."""
    if not isinstance(record, AnswerRecord):
        return record
    reward = 0.25 if record.step == 0 else {"grpo": 0.5, "gspo": 0.75}[run.arm]
    return replace(record, correct=0, reward=reward)


def test_the_mean_reward_decides_where_it_is_primary(tmp_path: Path) -> None:
    with Evidence.open(make_lab(tmp_path, BY_REWARD, change=partial)) as evidence:
        found = Source(evidence, "toy")
        assert found.declaration.primary == "addition:reward"
        assert benches(found) == ["addition:reward", "addition"], "the primary one first; the share stays"
        finals = {(one.arm, one.seed): (one.start, one.final) for one in outcomes(found, "addition:reward")}
        assert finals == {
            (arm, seed): (0.25, end) for arm, end in {"grpo": 0.5, "gspo": 0.75}.items() for seed in range(3)
        }
        assert {one.final for one in outcomes(found, "addition")} == {0.0}
        verdict = decision(found).verdicts["gspo"]
        assert verdict.paired.estimate == pytest.approx(0.25)
        tallies = tallies_of(found, "addition:reward")
        assert set(tallies["correct"] / tallies["answers"]) == {0.25, 0.5, 0.75}


def test_without_it_the_share_of_right_answers_decides(tmp_path: Path) -> None:
    with Evidence.open(make_lab(tmp_path, change=partial)) as evidence:
        found = Source(evidence, "toy")
        assert benches(found) == ["addition"]
        assert {one.final for one in outcomes(found, "addition")} == {0.0}


def test_the_mean_reward_of_a_benchmark_that_is_not_asked(tmp_path: Path) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(BY_REWARD.format(seeds=3, steps=4, every=4).replace("addition:reward", "adition:reward"))
    with pytest.raises(LabError) as refused:
        load_study(path)
    assert "verdict.primary: no benchmark 'adition:reward'" in str(refused.value.details)


PASS = TWO_ARMS.replace("[arm.grpo]", '[verdict]\nprimary = "addition:pass@2"\n[arm.grpo]', 1).replace(
    "problems = 20", "problems = 20\nsamples = 3"
)


def one_of_three(run: Run, record: Record) -> Record:
    """One of three answers to each problem is right; after the start gspo has two."""
    if not isinstance(record, AnswerRecord):
        return record
    right = 2 if run.arm == "gspo" and record.step > 0 else 1
    return replace(record, correct=int(record.sample < right))


def test_pass_at_k_decides_where_it_is_primary(tmp_path: Path) -> None:
    """pass@2 of 3 answers: with 1 right 1 - C(2,2) / C(3,2) = 2/3, with 2 right 1."""
    with Evidence.open(make_lab(tmp_path, PASS, change=one_of_three)) as evidence:
        found = Source(evidence, "toy")
        assert benches(found) == ["addition:pass@2", "addition"], "the primary one first; the share stays"
        finals = {one.arm: (one.start, one.final) for one in outcomes(found, "addition:pass@2")}
        assert finals == {"grpo": pytest.approx((2 / 3, 2 / 3)), "gspo": pytest.approx((2 / 3, 1.0))}
        assert decision(found).verdicts["gspo"].paired.estimate == pytest.approx(1 / 3)
        assert answers_variance(found, "grpo", "gspo", [0, 1, 2]) == pytest.approx(0.0)
        by_step = counted_wrong(found, "addition:pass@2", "toy/gspo/s0")
        assert by_step == pytest.approx({0: 2 / 3, 4: 1.0, 8: 1.0, 12: 1.0})


def test_pass_at_k_needs_k_answers(tmp_path: Path) -> None:
    path = tmp_path / "few.toml"
    path.write_text(PASS.format(seeds=3, steps=4, every=4).replace("pass@2", "pass@4"))
    with pytest.raises(LabError) as refused:
        load_study(path)
    assert "'addition:pass@4' needs 4 answers to a problem at every evaluation, and bench.addition.samples = 3" in str(
        refused.value.details
    )
