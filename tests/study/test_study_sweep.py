"""Sweeps and A/A studies: what they make of a study's arms."""

from pathlib import Path

import pytest
from study_files import ARMS, SHARED

from gspo_lab.common.errors import LabError
from gspo_lab.study import aa_study, load_study

RATES = "[sweep]\nupdate.learning_rate = [1e-3, 2e-4]\n"


def write(tmp_path: Path, sweep: str = "") -> Path:
    path = tmp_path / "swept.toml"
    path.write_text(SHARED + ARMS + sweep)
    return path


def test_every_arm_runs_at_every_dose(tmp_path: Path) -> None:
    path = write(tmp_path, RATES)
    study = load_study(path)
    assert list(study.arms) == ["grpo@0.0002", "gspo@0.0002", "grpo@0.001", "gspo@0.001"]
    arm = study.arms["gspo@0.001"]
    assert (arm.of, arm.dose, arm.settings.update.learning_rate) == ("gspo", 1e-3, 1e-3)
    assert "update.learning_rate" in arm.declared
    assert len(study.runs()) == 8
    assert study.locked()["sweep"] == {"key": "update.learning_rate", "doses": [2e-4, 1e-3]}
    assert study.locked()["arms"]["gspo@0.001"]["dose"] == 1e-3
    assert list(load_study(path, arms=["gspo"]).arms) == ["gspo@0.0002", "gspo@0.001"]
    twins = aa_study(study, "gspo@0.001")
    assert "sweep" not in twins.locked(), "one dose against itself is no sweep"
    assert [arm.settings.update.learning_rate for arm in twins.arms.values()] == [1e-3, 1e-3]


def test_a_claim_names_an_arm_at_a_dose(tmp_path: Path) -> None:
    claim = """
[[claim]]
name = "spreads-more"
arms = {of = "gspo@0.001", against = "gspo@0.0002"}
metric = "stale_k3"
statistic = "mean over updates"
comparison = "ratio"
above = 1
"""
    path = write(tmp_path, RATES + claim)
    assert load_study(path).claims[0].arms == {"of": "gspo@0.001", "against": "gspo@0.0002"}
    assert load_study(path, arms=["grpo"]).claims, "an arm that is left out this time is no mistake"
    path.write_text(path.read_text().replace('"gspo@0.001"', '"gspo"'))
    with pytest.raises(LabError) as error:
        load_study(path)
    assert error.value.details[0].startswith(
        "claim.spreads-more.arms.of: no arm 'gspo'; this study has grpo@"
    )


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        ("[sweep]", "sweep: give one setting"),
        ("[sweep]\nupdate.learning_rate = [1e-3]", "at least two"),
        ("[sweep]\nupdate.learning_rate = [1e-3, -1]", "> 0"),
        ("[sweep]\nupdate.learning_rate = 'fast'", "in a list"),
        (
            "[sweep]\nupdate.learning_rate = [1e-3, inf]",
            "different numbers > 0 in a list; got [0.001, inf]",
        ),
        ("[sweep]\nupdate.learning_rate = [nan, 1e-3]", "different numbers > 0"),
        (f"[sweep]\nupdate.epochs = [1, 1{'0' * 400}]", "different numbers > 0"),
        ("[sweep]\nupdate.learning_rate = [1e-3, 1.0000001e-3, 2e-3]", "the same in six digits"),
        (
            "[sweep]\nseeds = [0, 1, 2]",
            "sweep.seeds: cannot be swept; seeds pair the arms, every arm runs on all",
        ),
        (
            "[sweep]\nverdict.margin = [0.1, 0.2]",
            "sweep.verdict.margin: cannot be swept; it belongs to the study",
        ),
        ("[sweep]\nbench.samples = [1, 2]", "sweep.bench.samples: 'bench' is no table"),
        ("[sweep]\nsteps.more = [1, 2]", "sweep.steps.more: 'steps' is no table"),
        ("[sweep]\nupdate.lerning_rate = [1, 2]", "did you mean 'learning_rate'"),
        (
            "[sweep]\nupdate.learning_rate = [1e-3, 2e-3]\nupdate.epochs = [1, 2]",
            "give one setting",
        ),
    ],
)
def test_a_wrong_sweep_is_told_once(tmp_path: Path, sweep: str, said: str) -> None:
    with pytest.raises(LabError) as caught:
        load_study(write(tmp_path, sweep))
    assert [said in line for line in caught.value.details] == [True]


def test_an_arm_against_itself(tmp_path: Path) -> None:
    study = aa_study(load_study(write(tmp_path)), "gspo")
    a, b = study.arms.values()
    assert (study.name, a.name, b.name) == ("swept-aa-gspo", "gspo-a", "gspo-b")
    assert a.settings == b.settings
    assert not a.settings.rollout.coupled
    assert "rollout.coupled" in a.declared
    assert study.verdict.baseline == "gspo-a"
    assert study.command == ("studies/swept.toml", "--aa", "gspo")
