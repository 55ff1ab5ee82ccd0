"""The mathematics: ratios, clipping, aggregation, advantages, and what is measured of them. Imports without torch."""

from gspo_lab.objectives.advantages import advantages
from gspo_lab.objectives.balance import balanced
from gspo_lab.objectives.batch import Batch
from gspo_lab.objectives.clipping import binds
from gspo_lab.objectives.measures import ratio_measures, response_detail
from gspo_lab.objectives.mismatch import mismatch_measures, mismatch_weight
from gspo_lab.objectives.objective import Surrogate, surrogate
from gspo_lab.objectives.presets import PRESETS, ObjectiveSettings
from gspo_lab.objectives.ratios import RATIOS, RULES

__all__ = [
    "PRESETS",
    "RATIOS",
    "RULES",
    "Batch",
    "ObjectiveSettings",
    "Surrogate",
    "advantages",
    "balanced",
    "binds",
    "mismatch_measures",
    "mismatch_weight",
    "ratio_measures",
    "response_detail",
    "surrogate",
]
