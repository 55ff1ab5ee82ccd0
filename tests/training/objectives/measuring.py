"""Mini-batches written by hand, and `ratio_measures` of them with what their objective clipped, as
engines call it.
"""

from typing import Any

import torch
from torch import Tensor

from gspo_lab.training.objectives import Batch, Surrogate, ratio_metrics, surrogate
from gspo_lab.training.objectives.losses import Common, Loss


def batch_of(mask: list[list[int]], adv: list[float], old_BT: Tensor | None = None) -> Batch:
    mask_BT = torch.tensor(mask, dtype=torch.bool)
    adv_BT = torch.tensor(adv, dtype=torch.float64)[:, None] * mask_BT
    old_BT = torch.zeros(mask_BT.shape, dtype=torch.float64) if old_BT is None else old_BT
    return Batch(mask_BT, adv_BT, old_BT, responses=len(mask), tokens=int(mask_BT.sum()))


def ratio_measures(
    l_BT: Tensor,
    mask_BT: Tensor,
    adv_BT: Tensor,
    evaluated_B: Tensor,
    settings: Common,
    bands: ratio_metrics.Bands,
    **more: Any,
) -> dict[str, Any]:
    out = surrogate(
        l_BT, Batch(mask_BT, adv_BT, 0 * l_BT, len(mask_BT), int(mask_BT.sum())), settings
    )
    return ratio_metrics.ratio_measures(
        *(out.log_ratio_BT, mask_BT, adv_BT, evaluated_B, settings, bands),
        clipped_BT=out.clipped_BT,
        gate_BT=out.gate_BT,
        dual_clipped_BT=out.dual_clipped_BT,
        **more,
    )


def gradient(
    settings: Common, batch: Batch, logp_BT: Tensor, loss: Loss[Any] | None = None
) -> tuple[Surrogate, Tensor]:
    """What the objective returns, and the gradient of its loss by the log-probs."""
    leaf = logp_BT.clone().requires_grad_()
    out = surrogate(leaf, batch, settings, loss)
    out.loss.backward()
    return out, leaf.grad
