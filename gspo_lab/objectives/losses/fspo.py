"""FSPO: the clip on the sequence's whole ratio W, in a range that grows with the root of the length."""

from gspo_lab.objectives.losses.loss import LARGEST_LOG_RATIO, Loss, LossInputs, Term, spread_sum
from gspo_lab.objectives.settings import Common


def term(moved: LossInputs, settings: Common) -> Term:
    """min(W A, clip(W) A)."""
    adv_BT, active_BT = moved.batch.adv_BT, moved.active_BT
    root_B1 = moved.batch.mask_BT.sum(dim=1, keepdim=True, dtype=moved.log_ratio_BT.dtype).sqrt()
    log_whole_BT = spread_sum(moved.log_ratio_BT).masked_fill(~active_BT, 0.0)
    low_B1, high_B1 = -settings.clip_low * root_B1, settings.clip_high * root_B1
    held_BT = log_whole_BT.maximum(low_B1).minimum(high_B1)
    whole_BT = log_whole_BT.clamp(max=LARGEST_LOG_RATIO).exp()
    value_BT = (whole_BT * adv_BT).minimum(held_BT.clamp(max=LARGEST_LOG_RATIO).exp() * adv_BT)
    under_BT, over_BT = (log_whole_BT < low_B1) & (adv_BT < 0), (log_whole_BT > high_B1) & (adv_BT > 0)
    return Term(value_BT, ((under_BT | over_BT) & active_BT).detach())


LOSS = Loss(
    name="fspo",
    source="2509.09177",
    formula="min(W A, clip(W) A) within exp(-clip_low sqrt(L)), exp(clip_high sqrt(L))",
    term=term,
    clips="whole responses",
    ratio="own",
    alike_at_1=False,
)
