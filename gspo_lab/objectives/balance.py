"""BAPO's clip range, which follows from a whole mini-batch and must be known before its first gradient: 2510.18927.

As in its authors' code (WooooDyy/BAPO, `recipe/bapo/policy_loss.py`), but for two things: that counts each of its
micro-batches alone, so that their number changes the gradient, and has verl's dual clip at 3. Shapes as in
objective.py.
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from gspo_lab.objectives.batch import Batch
from gspo_lab.objectives.objective import surrogate
from gspo_lab.objectives.presets import ObjectiveSettings

if TYPE_CHECKING:
    from torch import Tensor

STEP = 0.05
"""How far the upper bound moves at a time."""


def balanced(logp_BT: "Tensor", batch: Batch, settings: ObjectiveSettings) -> ObjectiveSettings:
    """`settings` with the range for this whole mini-batch under the log-probs `logp_BT`, which have no gradient.

    Where the terms with A > 0 have less than bapo_share of all terms' sizes, the lower bound ends at 1 - bapo_clip_low,
    and the upper one rises from 1 + clip_high until they have it, to 1 + bapo_clip_high at most. The code raises the
    lower bound step by step too; but what is clipped keeps its size at the bound, so that no step gains a share.
    """
    rising, falling = (replace(batch, adv_BT=adv_BT) for adv_BT in (batch.adv_BT.clip(0), batch.adv_BT.clip(max=0)))

    def size(part: Batch, at: ObjectiveSettings) -> float:
        return abs(float(surrogate(logp_BT, part, replace(at, kl_coef=0.0)).loss))

    def has_its_share(at: ObjectiveSettings) -> bool:
        return size(rising, at) * (1 - settings.bapo_share) >= size(falling, at) * settings.bapo_share

    if has_its_share(settings):
        return settings
    steps = math.ceil((settings.bapo_clip_high - settings.clip_high) / STEP - 1e-9)
    ends = [*(settings.clip_high + STEP * step for step in range(steps)), settings.bapo_clip_high]
    wider = [replace(settings, clip_low=settings.bapo_clip_low, clip_high=end) for end in ends]
    return next(filter(has_its_share, wider), wider[-1])
