"""What the lab derives from the keys' own metadata: each list equals the one that once stood beside the code."""

import pytest

from gspo_lab.engines.areal import ArealEngine
from gspo_lab.engines.base import Engine
from gspo_lab.engines.trl import TrlEngine
from gspo_lab.engines.verl import VerlEngine
from gspo_lab.matching.pairing import SAMPLING, STARTING
from gspo_lab.objectives.losses import LOSSES
from gspo_lab.study.dotted import flat, under
from gspo_lab.study.schema import KEYS, Settings, TaskTable, obeyed

PASSES = {
    *("engine", "routing_replay", "objective.kl_coef", "objective.advantage", "objective.policy_loss"),
    *(f"update.{key}" for key in ("minibatches", "epochs", "old_logprobs", "skip_zero_advantage", "lora_rank")),
}
COSTS = {
    *("task", "model", "device", *PASSES, "update.dtype", "update.gradient_checkpointing"),
    *(f"rollout.{key}" for key in ("prompts_per_step", "group_size", "max_tokens", "tokens_per_step")),
    *(f"rollout.{key}" for key in ("dynamic_sampling", "sampler", "dtype")),
}
MATTERS = {"objective.kl_coef", "objective.advantage", "objective.policy_loss", "update.lora_rank"}
RATIO_KEYS = {
    *("objective.preset", "objective.importance_sampling_level", "objective.dual_clip"),
    *("objective.clip", "objective.clip_low", "objective.clip_high", "objective.clip_target"),
    *("objective.bapo_clip_low", "objective.bapo_clip_high", "objective.bapo_share"),
    *("objective.sapo_tau_positive", "objective.sapo_tau_negative"),
    *("objective.vespo_k_positive", "objective.vespo_lambda_positive"),
    *("objective.vespo_k_negative", "objective.vespo_lambda_negative"),
}
TUNABLE = ("objective", "update", "rollout.temperature", "rollout.top_p", "routing_replay")


def test_settings_have_the_traits_that_the_lists_gave_them() -> None:
    assert {name for name, key in KEYS.items() if key.passes} == PASSES
    assert {name for name, key in KEYS.items() if key.cost} == COSTS
    assert {name for name, key in KEYS.items() if key.dear} == MATTERS
    assert {name for name, key in KEYS.items() if key.acts == "ratio"} == RATIO_KEYS
    assert {name for name, key in KEYS.items() if key.anywhere} == {"device", "warm_start.seed"}
    tunable = {name for name in KEYS if under(name, TUNABLE)} - {"objective.preset", "objective.loss_options"}
    assert {name for name, key in KEYS.items() if key.arms == "choose"} == tunable
    starting = ("model", "warm_start", "task")
    assert set(STARTING) == {name for name in KEYS if under(name, starting)}
    sampling = {name for name in KEYS if under(name, (*starting, "rollout"))}
    assert set(SAMPLING) == sampling - {"rollout.staleness"}


def test_losses_have_the_traits_that_the_lists_gave_them() -> None:
    assert {name for name, loss in LOSSES.items() if loss.clips is None} == {
        *("cispo", "reinforce", "vespo", "sapo", "pspo")
    }
    assert {name for name, loss in LOSSES.items() if not loss.reads_range} == {"reinforce", "vespo", "sapo", "pspo"}
    assert {name for name, loss in LOSSES.items() if loss.ratio != "level"} == {"reinforce", "vespo", "gmpo", "fspo"}
    assert {name for name, loss in LOSSES.items() if not loss.alike_at_1} == {"pspo", "fspo"}


@pytest.mark.parametrize(("name", "engine"), [("trl", TrlEngine), ("verl", VerlEngine), ("areal", ArealEngine)])
def test_an_engine_obeys_the_keys_that_name_it(name: str, engine: type[Engine]) -> None:
    plain = flat(Settings(task=TaskTable(name="addition")).model_dump(mode="json")).keys() - {"task.name", "engine"}
    by_list = {key for key in plain if under(key, engine.capabilities.settings or ())}
    assert {key for key in plain if under(key, obeyed(name))} == by_list
