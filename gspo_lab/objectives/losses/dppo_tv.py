"""DPPO by binary total variation: a token's probability may move along A by no more than clip_low or clip_high."""

from typing import TYPE_CHECKING

from gspo_lab.objectives.losses.loss import Loss, LossInputs, Term
from gspo_lab.objectives.settings import Common

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_RATIO = 20.0
"""Where the weight is truncated, as verl does (`clip_ratio_c`)."""


def term(moved: LossInputs, settings: Common) -> Term:
    """By how far pi moved; against the sampler where `update.old_logprobs = "sampler"`."""
    moved_BT = moved.logp_BT.detach().exp() - moved.batch.old_logp_BT.exp()
    return masked_by_divergence(moved, moved_BT < -settings.clip_low, moved_BT > settings.clip_high)


def masked_by_divergence(moved: LossInputs, fell_BT: "Tensor", rose_BT: "Tensor") -> Term:
    """sg(min(r, 20)) A log pi, without the tokens that fell too far with A < 0 or rose too far with A > 0."""
    adv_BT = moved.batch.adv_BT
    clipped_BT = moved.active_BT & ((fell_BT & (adv_BT < 0)) | (rose_BT & (adv_BT > 0)))
    weight_BT = moved.ratio_BT.detach().clamp(max=LARGEST_RATIO).masked_fill(clipped_BT, 0.0)
    logp_BT = moved.logp_BT.masked_fill(~moved.active_BT, 0.0)
    return Term(weight_BT * adv_BT * logp_BT, clipped_BT)


LOSS = Loss(
    name="dppo-tv",
    source="2602.04879",
    formula="sg(min(rho, 20)) A log pi, unless pi - q > clip_high with A > 0, or q - pi > clip_low with A < 0",
    term=term,
)
