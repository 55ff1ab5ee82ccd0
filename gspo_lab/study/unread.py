"""Which settings a run never reads, because of what others are: `gamma` without a critic, `lora_alpha` without LoRA.

Two ask: arms that differ in nothing else would be the same run twice (`rules`), and a value that somebody wrote and
nobody reads is a mistake of theirs (`lints`).
"""

import math
from collections.abc import Callable

from gspo_lab.study.dotted import under
from gspo_lab.study.schema import Settings

WITHOUT_RANGE = {"reinforce", "vespo", "sapo", "pspo"}
"""The policy losses that read no range."""

Condition = Callable[[Settings], bool]


def unread(key: str, one: Settings) -> str | None:
    """Why a run with the settings `one` does not read `key`, as half a sentence behind it; None where it does."""
    for keys, read, without in READ_WHERE:
        if under(key, keys) and not read(one):
            return f"does nothing {without.format(one.objective)}"
    return None


def _critic(one: Settings) -> bool:
    return one.objective.advantage == "gae"


def _of_loss(loss: str, *names: str) -> tuple[tuple[str, ...], Condition, str]:
    keys = tuple(f"objective.{loss}_{name}" for name in names)
    return keys, lambda one: one.objective.policy_loss == loss, f"without policy_loss = '{loss}'"


def _cuts(one: Settings) -> bool:
    return (one.rollout.tokens_per_step or math.inf) < (one.rollout.max_tokens or math.inf)


READ_WHERE: tuple[tuple[tuple[str, ...], Condition, str], ...] = (
    (
        ("objective.clip_low", "objective.clip_high"),
        lambda one: one.objective.policy_loss not in WITHOUT_RANGE,
        "with policy_loss = '{0.policy_loss}'",
    ),
    (("objective.clip_target",), lambda one: one.objective.clip != "fixed", "with clip = 'fixed'"),
    (
        ("objective.aggregation_constant",),
        lambda one: one.objective.aggregation == "constant",
        "without aggregation = 'constant'",
    ),
    (
        ("objective.mismatch_low", "objective.mismatch_high"),
        lambda one: one.objective.mismatch_correction != "none",
        "without mismatch_correction",
    ),
    (
        ("objective.gamma", "objective.gae_lambda", "objective.whiten_advantages", "critic"),
        _critic,
        "without advantage = 'gae'",
    ),
    (
        ("objective.sequence_advantage",),
        lambda one: _critic(one) and one.objective.importance_sampling_level == "sequence",
        "without advantage = 'gae' and importance_sampling_level = 'sequence'",
    ),
    _of_loss("bapo", "clip_low", "clip_high", "share"),
    _of_loss("sapo", "tau_positive", "tau_negative"),
    _of_loss("pspo", "smoothing"),
    _of_loss("vespo", "k_positive", "lambda_positive", "k_negative", "lambda_negative"),
    (("rollout.tokens_per_step",), _cuts, "where it is rollout.max_tokens or more"),
    (("rollout.overlong_penalty",), lambda one: one.rollout.overlong_buffer is not None, "without overlong_buffer"),
    (
        ("update.skip_zero_advantage",),
        lambda one: one.objective.kl_coef == 0,
        "with kl_coef > 0, which asks all responses",
    ),
    (("update.lora_alpha",), lambda one: one.update.lora_rank > 0, "with lora_rank = 0"),
)
"""Keys or tables, what must hold of the settings where they are read, and what to say, of the objective, elsewhere."""
