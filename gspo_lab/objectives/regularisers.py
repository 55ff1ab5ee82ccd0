"""What is taken from every token's term beside the policy loss.

Shapes: B responses, T response tokens (padded); everything is [B, T] and 0 off the mask.
"""

import math
from typing import TYPE_CHECKING

from gspo_lab.objectives.losses.loss import LARGEST_LOG_RATIO
from gspo_lab.objectives.ratios import Batch
from gspo_lab.objectives.settings import Common

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_KL_LOG_RATIO = 40.0
"""Behind it k3 goes on along its tangent: e^40 squared, and summed over a gradient, is still finite in float32."""


def kl_estimate(logp_BT: "Tensor", batch: Batch, settings: Common) -> "Tensor":
    """Each token's estimate of KL(pi, pi_ref), by `settings.kl_estimate`. `batch` needs `ref_logp_BT`."""
    assert batch.ref_logp_BT is not None
    d_BT = (batch.ref_logp_BT - logp_BT).masked_fill(~batch.mask_BT, 0.0)
    if settings.kl_estimate == "k3":
        return k3(d_BT)
    return weighted_k3(d_BT, (logp_BT - batch.old_logp_BT).masked_fill(~batch.mask_BT, 0.0))


def weighted_k3(d_BT: "Tensor", log_ratio_BT: "Tensor") -> "Tensor":
    """w (exp(d) - d - 1), w = pi / pi_old: DeepSeek-V3.2's unbiased estimate, arXiv 2512.02556 eq. 7.

    w exp(d) is pi_ref / pi_old and has no gradient. What is left, -w (d + 1), has the gradient -w d of log pi, whose
    mean over tokens of the old policy is the gradient of KL(pi, pi_ref). A ratio beyond e^38 has none.
    """
    far_BT = log_ratio_BT.detach() > LARGEST_LOG_RATIO
    near_d_BT = d_BT.where(~far_BT, d_BT.detach())
    known_BT = (log_ratio_BT + d_BT).detach().clamp(max=LARGEST_LOG_RATIO).exp()
    return known_BT - log_ratio_BT.clamp(max=LARGEST_LOG_RATIO).exp() * (near_d_BT + 1)


def k3(d_BT: "Tensor") -> "Tensor":
    """exp(d) - d - 1 of http://joschu.net/blog/kl-approx.html, d = log pi_ref - log pi; a line behind d = 40."""
    near_BT = d_BT.clamp(max=LARGEST_KL_LOG_RATIO)
    # Cut off at 0: the slope of 2e17 must not reach the near part's gradient, not even where it would cancel.
    beyond_BT = (d_BT - LARGEST_KL_LOG_RATIO).clamp(min=0) * math.expm1(LARGEST_KL_LOG_RATIO)
    return near_BT.exp() - near_BT - 1 + beyond_BT
