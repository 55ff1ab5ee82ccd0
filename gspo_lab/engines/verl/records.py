"""What verl's log says of a rollout batch, and which columns of steps and updates the engine fills."""

from collections.abc import Mapping
from typing import Any

from gspo_lab.engines.leavings import DIGESTS, FROM_ANSWERS, MEASURED, Told

OWN = {
    "entropy": "verl's actor/entropy: aggregated as objective.aggregation says, not over all tokens alike",
    "mismatch_k1": "",
    "mismatch_k3": "",
    "seconds_rollout": "sampling and grading, which go on side by side",
    "evaluated_responses": "all responses: verl evaluates those with A = 0 too",
}
"""Columns of steps whose definition verl has its own of, or that are read from its log."""

SECONDS = ("seconds_old_logprobs", "seconds_update", "seconds_step")
RECORDS = {**FROM_ANSWERS, **MEASURED, **dict.fromkeys(("loss", *SECONDS), ""), **DIGESTS, **OWN}
"""The columns that the engine fills, as its capabilities say. Updates are measured one by one, never step means."""


def told(line: Mapping[str, Any]) -> Told:
    """`line` is verl's `data` of a rollout batch."""
    return Told(
        seconds_step=float(line["timing_s/step"]) - float(line.get("timing_s/save_checkpoint", 0.0)),
        seconds_rollout=line.get("timing_s/gen"),
        seconds_old_logprobs=line.get("timing_s/old_log_prob"),
        seconds_update=line.get("timing_s/update_actor"),
        entropy=line.get("actor/entropy"),
        mismatch_k1=line.get("rollout_corr/kl"),
        mismatch_k3=line.get("rollout_corr/k3_kl"),
    )
