"""One study, every number by one rule."""

from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_lab import make_lab

from gspo_lab.errors import LabError
from gspo_lab.findings.compared import scalars
from gspo_lab.findings.decision import decision
from gspo_lab.findings.matched import study_certificate
from gspo_lab.findings.outcomes import outcomes
from gspo_lab.readings import Reading, Reduce, Source, Steps, Window, read
from gspo_lab.readings.curves import reward_curves
from gspo_lab.readings.runs import finished_seeds
from gspo_lab.records import Record, StepRecord
from gspo_lab.store import Evidence, rebuild
from gspo_lab.study import Run

STEPS = 5


def gap(run: Run, record: Record) -> Record:
    """Rewards 1, 2, none, 4, none by step: step 2 holds 2, step 4 holds 4."""
    if not isinstance(record, StepRecord):
        return record
    return replace(record, reward_mean=[1.0, 2.0, None, 4.0, None][record.step])


def test_a_gap_in_the_reward_is_one_number_for_report_and_claims(tmp_path: Path) -> None:
    with Evidence.open(make_lab(tmp_path, seeds=1, steps=STEPS, every=STEPS, change=gap)) as evidence:
        found = Source(evidence, "toy")
        steps, reward = reward_curves(found)["grpo", 0]
        assert (steps.tolist(), reward.tolist()) == ([0, 1, 2, 3, 4], [1, 2, 2, 4, 4])
        area = next(one for one in scalars(found) if one.name.startswith("training reward, area"))
        assert area.values["grpo", 0] == pytest.approx((1.5 + 2 + 3 + 4) / 4)
        by_claims = read(found, Reading("reward_mean", Window(Steps.ALL), Reduce.AREA))["toy/grpo/s0"]
        assert by_claims.value == area.values["grpo", 0]


def test_what_is_asked_twice_is_found_once(tmp_path: Path) -> None:
    with Evidence.open(make_lab(tmp_path)) as evidence:
        found = Source(evidence, "toy", "there")
        assert decision(found) is decision(found)
        assert outcomes(found, "addition") is outcomes(found, "addition")
        assert decision(found).matched is study_certificate(found)
        assert (found.label, Source(evidence, "toy").label) == ("there", "toy")
        assert finished_seeds(found, ["grpo", "gspo"]) == [0, 1, 2]
        with pytest.raises(LabError, match=r"no study 'tou'.*did you mean 'toy'"):
            _ = Source(evidence, "tou").declaration


def test_a_copied_study_goes_by_its_folder_s_name(tmp_path: Path) -> None:
    database = make_lab(tmp_path)
    (database.parent / "toy").rename(database.parent / "copy")
    rebuild(database.parent)
    with Evidence.open(database) as evidence:
        found = Source(evidence, "copy")
        assert found.declaration.name == "copy"
        assert study_certificate(found).lock.state == "equal"
        assert decision(found).verdicts
