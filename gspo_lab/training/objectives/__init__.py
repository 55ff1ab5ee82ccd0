"""The mathematics: ratios, clipping, aggregation, advantages, values, and measures.

Imports without torch.
"""

from gspo_lab.training.objectives.advantages import (
    advantages,
    at_last_token,
    decoupled,
    explained_variance,
    gae,
    overlong_penalty,
    sequence_advantages,
    turn_advantages,
    value_loss,
    whitened,
)
from gspo_lab.training.objectives.conforming import assert_conforms, loss_of
from gspo_lab.training.objectives.objective import Surrogate, mismatch_measures, prepared, surrogate
from gspo_lab.training.objectives.presets import PRESETS, Objective
from gspo_lab.training.objectives.ratios import Batch
from gspo_lab.training.objectives.recorder import Recorder, response_detail

__all__ = [
    "PRESETS",
    "Batch",
    "Objective",
    "Recorder",
    "Surrogate",
    "advantages",
    "assert_conforms",
    "at_last_token",
    "decoupled",
    "explained_variance",
    "gae",
    "loss_of",
    "mismatch_measures",
    "overlong_penalty",
    "prepared",
    "response_detail",
    "sequence_advantages",
    "surrogate",
    "turn_advantages",
    "value_loss",
    "whitened",
]
