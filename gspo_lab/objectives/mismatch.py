"""The difference between the sampler that drew the tokens and the trainer that learns from them: measured, corrected.

d_t = log pi_old(y_t) - log mu(y_t), at equal weights: pi_old as the trainer computes it, mu as the sampler did. It is
there before any update, and apart from how far updates then move the policy. Shapes as in objective.py; N responses.
"""

import math
from typing import TYPE_CHECKING, Any

from gspo_lab.objectives.batch import Batch
from gspo_lab.objectives.settings import Common

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_LOG_WEIGHT = 80.0
"""e^80 is still finite in float32; what is larger lies outside every range."""


def mismatch_weight(batch: Batch, settings: Common) -> "Tensor":
    """[B, T] detached factors of the token terms; 1 everywhere without a correction.

    With k_t = exp(d_t), K = prod k_t over the response and a range [low, high]:
    `tis`             k_t limited to the range             Yao et al. 2025, fengyao.notion.site/off-policy-rl
    `icepop`          k_t inside the range, else 0         arXiv 2510.18855
    `sequence-mask`   K inside the range, else 0           MIS, Liu, Li et al. 2025, richardli.xyz/rl-collapse
    `geometric-mask`  1 where K^(1/L) is inside, else 0    Geo-RS of the same
    """
    if settings.mismatch_correction == "none":
        return batch.adv_BT.new_ones(batch.adv_BT.shape)
    assert batch.sampler_logp_BT is not None
    assert settings.mismatch_low is not None
    assert settings.mismatch_high is not None
    mask_BT = batch.mask_BT
    d_BT = (batch.old_logp_BT - batch.sampler_logp_BT).detach().masked_fill(~mask_BT, 0.0)
    if settings.mismatch_correction in ("sequence-mask", "geometric-mask"):
        d_BT = d_BT.sum(dim=1, keepdim=True).expand_as(d_BT)
    if settings.mismatch_correction == "geometric-mask":
        d_BT = d_BT / mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
    weight_BT = d_BT.clamp(max=LARGEST_LOG_WEIGHT).exp()
    if settings.mismatch_correction == "tis":
        return weight_BT.clamp(settings.mismatch_low, settings.mismatch_high)
    inside_BT = (weight_BT >= settings.mismatch_low) & (weight_BT <= settings.mismatch_high)
    if settings.mismatch_correction == "geometric-mask":
        return inside_BT.to(weight_BT.dtype)
    return weight_BT.masked_fill(~inside_BT, 0.0)


def mismatch_measures(d_NT: "Tensor", mask_NT: "Tensor") -> dict[str, Any]:
    """The fields of a StepRecord that follow from d at the tokens of `mask_NT`; nothing where it marks none."""
    import numpy as np

    mask = mask_NT.cpu().numpy()
    mask = mask[mask.any(axis=1)]
    if not len(mask):
        return {}
    d_NT64 = np.where(mask, d_NT[mask_NT.any(dim=1)].double().cpu().numpy(), 0.0)
    d_X, length_N = d_NT64[mask], mask.sum(axis=1)
    total_N = d_NT64.sum(axis=1)
    mean_N = total_N / length_N
    with np.errstate(over="ignore"):
        k3 = float((np.exp(d_X) - 1 - d_X).mean())
    return {
        "mismatch_k1": float(-d_X.mean()),
        "mismatch_k3": k3,
        "mismatch_abs_mean": float(np.abs(d_X).mean()),
        "mismatch_abs_max": float(np.abs(d_X).max()),
        "mismatch_outside_2": float((np.abs(d_X) > math.log(2)).mean()),
        "mismatch_std_tokens": float(d_X.std()),
        "mismatch_std_responses": float(mean_N.std()),
        "mismatch_std_independent": float(d_X.std() * np.sqrt((1 / length_N).mean())),
        "mismatch_abs_max_responses": float(np.abs(mean_N).max()),
        "mismatch_outside_2_responses": float((np.abs(total_N) > math.log(2)).mean()),
    }
