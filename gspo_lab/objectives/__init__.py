"""The mathematics: ratios, clipping, aggregation, advantages, and what is measured of them. Imports without torch."""

from gspo_lab.objectives.advantages import advantages
from gspo_lab.objectives.measures import ratio_measures, response_detail
from gspo_lab.objectives.mismatch import mismatch_measures, mismatch_weight
from gspo_lab.objectives.objective import Batch, Surrogate, binds, surrogate
from gspo_lab.objectives.presets import PRESETS, RULES, ObjectiveSettings

__all__ = [
    "PRESETS",
    "RULES",
    "Batch",
    "ObjectiveSettings",
    "Surrogate",
    "advantages",
    "binds",
    "mismatch_measures",
    "mismatch_weight",
    "ratio_measures",
    "response_detail",
    "surrogate",
]
