"""GMPO: the clip of a token before the mean over the response."""

import math

from gspo_lab.objectives.losses.loss import LARGEST_LOG_RATIO, Loss, LossInputs, Term
from gspo_lab.objectives.ratios import sequence_mean
from gspo_lab.objectives.settings import Common


def term(moved: LossInputs, settings: Common) -> Term:
    """exp(mean of c_t) A, c_t = l_t clipped on the side of A."""
    mask_BT, adv_BT = moved.batch.mask_BT, moved.batch.adv_BT
    bounds = math.log1p(-settings.clip_low), math.log1p(settings.clip_high)
    l_BT = moved.log_ratio_BT.masked_fill(~moved.active_BT, 0.0)
    clamped_BT = l_BT.clamp(*bounds)
    c_BT = l_BT.minimum(clamped_BT).where(adv_BT > 0, l_BT.maximum(clamped_BT))
    ratio_BT = sequence_mean(c_BT, mask_BT).clamp(max=LARGEST_LOG_RATIO).exp().expand_as(l_BT)
    low_BT, high_BT = (l_BT < bounds[0]) & (adv_BT < 0), (l_BT > bounds[1]) & (adv_BT > 0)
    return Term(ratio_BT * adv_BT, (low_BT | high_BT) & moved.active_BT)


LOSS = Loss(
    name="gmpo",
    source="2507.20673",
    formula="exp(mean of c_t) A, c_t = l_t held within log(1 - clip_low), log(1 + clip_high) on the side of A",
    term=term,
    clips="tokens, before the mean",
    ratio="sequence",
    differs="a mismatch correction's factor stays each token's own, where verl takes its geometric mean",
)
