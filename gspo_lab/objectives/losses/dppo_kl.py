"""DPPO by the KL divergence of the two-way choice, this token or another."""

from gspo_lab.objectives.losses.dppo_tv import masked_by_divergence
from gspo_lab.objectives.losses.loss import Loss, LossInputs, Term
from gspo_lab.objectives.settings import Common


def term(moved: LossInputs, settings: Common) -> Term:
    """As `dppo-tv`, with that divergence as the measure of the move."""
    logp_BT, old_BT = moved.logp_BT.detach().masked_fill(~moved.batch.mask_BT, 0.0), moved.batch.old_logp_BT
    p_BT, q_BT = logp_BT.exp(), old_BT.exp()
    kl_BT = q_BT * (old_BT - logp_BT) + (1 - q_BT) * ((1 - q_BT + 1e-8) / (1 - p_BT + 1e-8)).log()
    fell_BT, rose_BT = (p_BT < q_BT) & (kl_BT > settings.clip_low), (p_BT > q_BT) & (kl_BT > settings.clip_high)
    return masked_by_divergence(moved, fell_BT, rose_BT)


LOSS = Loss(
    name="dppo-kl",
    source="2602.04879",
    formula="`dppo-tv`'s by q log(q / pi) + (1 - q) log((1 - q) / (1 - pi))",
    term=term,
)
