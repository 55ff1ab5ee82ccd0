"""The choices of `[tune]` are checked against engine and model before the first step.

They are checked as what arms declare is.
"""

from pathlib import Path

import pytest
from calling import lab_error

from gspo_lab.common.errors import LabError
from gspo_lab.running.plan.preflight import check
from gspo_lab.study import Study, load_study
from gspo_lab.study.tuning_trials import trained_arms, tuned
from gspo_lab.training.models.shapes import check_rank

ENGINE = """
from gspo_lab.training.engines.base import Capabilities

class Narrow:
    capabilities = Capabilities(settings=("device", "steps", "update", "objective.advantage", "objective.clip_high"))

    def train(self, run, sink, folder, stop):
        return True
"""  # noqa: E501
STUDY = """
question = "Which aggregation?"
task = "addition"
engine = "narrow.py:Narrow"
device = "cpu"
seeds = 1
steps = 2
[arm.mean]
objective = "grpo"
clip_high = 0.2
[arm.one-out]
advantage = "leave-one-out"
clip_high = 0.2
[tune]
seeds = [7]
steps = 1
metric = "reward"
[tune.values]
{values}
"""


def study(folder: Path, values: str) -> Study:
    (folder / "narrow.py").write_text(ENGINE)
    (folder / "tuned.toml").write_text(STUDY.format(values=values))
    return load_study(folder / "tuned.toml")


def test_an_engine_is_not_given_candidates_that_it_would_ignore(tmp_path: Path) -> None:
    result = study(tmp_path, 'objective.aggregation = ["seq-mean-token-mean", "token-mean"]')
    with pytest.raises(LabError) as caught:
        check(result)
    assert str(caught.value).startswith(
        "arm.mean@token-mean: the engine 'narrow.py:Narrow' would ignore objective.aggregation ="
        " 'token-mean'"
    )
    chosen = tuned(result, result.tune.model_copy(update={"chosen": {"mean": 0, "one-out": 0}}))
    assert list(trained_arms(chosen)) == list(chosen.arms.values())
    check(chosen)


def test_an_arm_s_mistake_is_told_of_the_arm_and_a_model_is_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = []

    def counted(model: str, rank: int) -> None:
        question.append((model, rank))
        check_rank(model, rank)

    monkeypatch.setattr("gspo_lab.running.plan.preflight.check_rank", counted)
    check(study(tmp_path, "update.learning_rate = [1e-4, 2e-4, 4e-4, 8e-4]"))
    assert question == [("tiny-qwen3", 0)]
    with lab_error(r"update\.lora_rank = 999: the layers of 'tiny-qwen3' are"):
        check(study(tmp_path, "update.lora_rank = [8, 999]"))
    faults = study(tmp_path, "update.learning_rate = [1e-4, 2e-4]\n[rollout]\ntemperature = 0.5")
    with lab_error(r"^arm\.mean: .* would ignore rollout\.temperature = 0\.5"):
        check(faults)
