"""A benchmark's mean reward as the score that decides: `verdict.primary = "NAME:reward"`."""

from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_lab import TWO_ARMS, make_lab

from gspo_lab.errors import LabError
from gspo_lab.findings.decision import decision
from gspo_lab.findings.outcomes import outcomes
from gspo_lab.readings import Source
from gspo_lab.readings.answers import benches
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
    changed: AnswerRecord = replace(record, correct=0, reward=reward)
    return changed


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
