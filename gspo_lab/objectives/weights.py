"""Factors of the token terms, without gradient: a correction for the sampler's mismatch, and masks of whole responses.

Shapes: B responses, T response tokens (padded).
"""

from typing import TYPE_CHECKING

from gspo_lab.objectives.ratios import Batch, sequence_mean
from gspo_lab.objectives.settings import Common

if TYPE_CHECKING:
    from torch import Tensor


LARGEST_LOG_WEIGHT = 80.0
"""e^80 is still finite in float32; what is larger lies outside every range."""


def token_weights(logp_BT: "Tensor", batch: Batch, settings: Common) -> "Tensor":
    """[B, T]: the product of all factors of a token's term; 1 everywhere where the settings have none."""
    weight_BT = mismatch_weight(batch, settings)
    if settings.off_policy_mask is None:
        return weight_BT
    return weight_BT.masked_fill(off_policy(logp_BT, batch, settings.off_policy_mask), 0.0)


def off_policy(logp_BT: "Tensor", batch: Batch, limit: float) -> "Tensor":
    """[B, T], True where A < 0 in a response whose mean of log mu - log pi is above `limit`, in nats per token.

    DeepSeek-V3.2, arXiv 2512.02556 eq. 9: its pi_old is the sampler's mu, so that the mean holds both the updates since
    the response was sampled and the difference between sampler and trainer. TRL's `off_policy_mask_threshold`.
    """
    assert batch.sampler_logp_BT is not None
    moved_BT = (batch.sampler_logp_BT - logp_BT.detach()).masked_fill(~batch.mask_BT, 0.0)
    masked_BT: Tensor = (batch.adv_BT < 0) & (sequence_mean(moved_BT, batch.mask_BT) > limit)
    return masked_BT


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
