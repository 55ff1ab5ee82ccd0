"""What AReaL's statistics say of a step, and which columns of steps and updates the engine fills."""

from collections.abc import Mapping
from typing import Any

from gspo_lab.engines.leavings import DIGESTS, FROM_ANSWERS, MEASURED, Told

OWN = {
    "entropy": "AReaL's ppo_actor/update/entropy: over the tokens of all updates, each by the policy of its update",
    "seconds_rollout": "sampling and grading, which go on side by side",
    "evaluated_responses": "all responses: AReaL evaluates those with A = 0 too",
}
SECONDS = ("seconds_old_logprobs", "seconds_update", "seconds_step")
RECORDS = {**FROM_ANSWERS, **MEASURED, **dict.fromkeys(SECONDS, ""), **DIGESTS, **OWN}
"""The columns that the engine fills, as its capabilities say. The loss of one update is not among what AReaL tells."""
PARTS = ("rollout", "recompute_logp", "compute_advantage", "train_step", "update_weights")


def told(data: Mapping[str, Any]) -> Told:
    """`data` is what AReaL commits of a step."""
    seconds = {name: data.get(f"timeperf/{name}") for name in PARTS}
    return Told(
        seconds_step=sum(value for value in seconds.values() if value is not None),
        seconds_rollout=seconds["rollout"],
        seconds_old_logprobs=seconds["recompute_logp"],
        seconds_update=seconds["train_step"],
        entropy=data.get("ppo_actor/update/entropy/avg"),
    )
