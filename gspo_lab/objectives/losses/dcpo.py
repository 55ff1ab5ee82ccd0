"""DCPO: the clip with bounds that widen where the old policy gave a token a small probability q."""

from gspo_lab.objectives.losses.loss import LARGEST_LOG_RATIO, Loss, LossInputs, Term
from gspo_lab.objectives.ratios import binds
from gspo_lab.objectives.settings import Common

LARGEST_RATIO = 10.0
"""The highest upper bound, as in its authors' code (lime-RL/DCPO, `get_clip_low_high`)."""


def term(moved: LossInputs, settings: Common) -> Term:
    """min(r A, clip(r) A) between the bounds of each token."""
    ratio_BT, adv_BT = moved.ratio_BT, moved.batch.adv_BT
    rarity_BT = (-moved.batch.old_logp_BT.detach()).clamp(max=LARGEST_LOG_RATIO).exp()
    low_BT = 0.5 + 0.5 * (1 - 4 * settings.clip_low * rarity_BT).clamp(min=0).sqrt()
    high_BT = (0.5 + 0.5 * (1 + 4 * settings.clip_high * rarity_BT).sqrt()).clamp(max=LARGEST_RATIO)
    value_BT = (ratio_BT * adv_BT).minimum(ratio_BT.maximum(low_BT).minimum(high_BT) * adv_BT)
    under_BT, over_BT = binds(ratio_BT.detach(), adv_BT, moved.batch.mask_BT, 1 - low_BT, high_BT - 1)
    return Term(value_BT, under_BT | over_BT)


LOSS = Loss(
    name="dcpo",
    source="2509.02333",
    formula="`clip`'s between .5 + .5 sqrt(max(1 - 4 clip_low / q, 0)) and .5 + .5 sqrt(1 + 4 clip_high / q), at most "
    "10",
    term=term,
    differs="its smoothed advantages and its dual clip are left out",
)
