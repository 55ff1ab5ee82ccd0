"""What a step costs: the settings that its time depends on, and which of their values cost alike.

A plan takes its pace from runs that are equal in all of them. Candidates of `[tune]` may differ in none of MATTERS,
each a further pass through a whole model; what the others cost, replay or a part of the old policy's pass, is small.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gspo_lab.study.dotted import flat

PASSES = (
    *("engine", "routing_replay"),
    *(f"objective.{key}" for key in ("kl_coef", "advantage", "policy_loss")),
    *(f"update.{key}" for key in ("minibatches", "epochs", "old_logprobs", "skip_zero_advantage", "lora_rank")),
)
"""The settings that decide how many passes a step makes over the same responses, and through how much of a model."""

COSTS = (
    *("task", "model", "device", *PASSES),
    *(f"rollout.{key}" for key in ("prompts_per_step", "group_size", "max_tokens", "tokens_per_step")),
    *(f"rollout.{key}" for key in ("dynamic_sampling", "sampler", "dtype")),
    *("update.dtype", "update.gradient_checkpointing"),
)

MATTERS: dict[str, Callable[[Any], bool]] = {
    "objective.kl_coef": bool,  # the starting model's pass, whatever its weight
    "objective.advantage": lambda value: value == "gae",  # a critic
    "objective.policy_loss": lambda value: value == "bapo",  # a pass that finds the range
    "update.lora_rank": bool,  # adapters are small beside what they stand at, at any rank
}
"""Of the settings whose values mostly cost alike: whether a value is one of those that cost more or less."""


def cost(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Per key of COSTS what counts of its value. `settings` are nested plain data; a key that they lack, since an older
    version wrote them, is None or what does not matter."""
    # Of these two the options count, and a table of options has no value of its own.
    known = {**flat(settings), **{key: settings.get(key) for key in ("task", "engine")}}
    return {key: MATTERS[key](known.get(key)) if key in MATTERS else known.get(key) for key in COSTS}
