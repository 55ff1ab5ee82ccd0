"""The clip of PPO, GRPO and GSPO."""

from gspo_lab.objectives.losses.loss import Loss, LossInputs, Term
from gspo_lab.objectives.ratios import binds
from gspo_lab.objectives.settings import Common


def term(moved: LossInputs, settings: Common) -> Term:
    """min(r A, clip(r, 1 - clip_low, 1 + clip_high) A); the dual clip is 1912.09729's."""
    ratio_BT, adv_BT, mask_BT = moved.ratio_BT, moved.batch.adv_BT, moved.batch.mask_BT
    clipped_ratio_BT = ratio_BT.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    value_BT = (ratio_BT * adv_BT).minimum(clipped_ratio_BT * adv_BT)
    low_BT, high_BT = binds(ratio_BT.detach(), adv_BT, mask_BT, settings.clip_low, settings.clip_high)
    if (cap := settings.dual_clip) is None:
        return Term(value_BT, low_BT | high_BT)
    dual_BT = mask_BT & (adv_BT < 0) & (ratio_BT.detach() > cap)
    return Term(value_BT.where(~dual_BT, cap * adv_BT), low_BT | high_BT, dual_BT)


LOSS = Loss(
    name="clip", source="1707.06347 eq. 7", formula="min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A)", term=term
)
