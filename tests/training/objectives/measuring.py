"""Mini-batches written by hand, and the numbers that are recorded of them."""

import math
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from gspo_lab.common.plain_data import JsonObject
from gspo_lab.training.objectives import Batch, Recorder, Surrogate, surrogate
from gspo_lab.training.objectives.losses import Common, Loss, Metrics
from gspo_lab.training.objectives.recorder import Bands

LN = math.log
# Two responses of unequal length, A = +1 and A = -1. The old log-probs are 0, so logp is l_t
# itself.
#   response 0, 3 tokens: w = 1.5, 1.0, 0.5     W = 0.75     s = 0.75^(1/3)
#   response 1, 1 token:  w = 0.5               W = s = 0.5
MASK = [[1, 1, 1], [1, 0, 0]]
LOGP = torch.tensor([[LN(1.5), 0.0, LN(0.5)], [LN(0.5), 0.0, 0.0]], dtype=torch.float64)


def batch_of(mask: list[list[int]], adv: list[float], old_BT: Tensor | None = None) -> Batch:
    mask_BT = torch.tensor(mask, dtype=torch.bool)
    adv_BT = torch.tensor(adv, dtype=torch.float64)[:, None] * mask_BT
    old_BT = torch.zeros(mask_BT.shape, dtype=torch.float64) if old_BT is None else old_BT
    return Batch(mask_BT, adv_BT, old_BT, responses=len(mask), tokens=int(mask_BT.sum()))


def numbers(
    l_BT: Tensor,
    mask_BT: Tensor,
    adv_BT: Tensor,
    evaluated_B: Tensor,
    settings: Common,
    bands: Bands,
    metrics: Metrics | None = None,
    **options: Any,
) -> JsonObject:
    """What is recorded of a mini-batch, with what its objective tells or with these `metrics`."""
    batch = Batch(mask_BT, adv_BT, 0 * l_BT, len(mask_BT), int(mask_BT.sum()))
    tensors = {"log_ratio_BT": l_BT, "mask_BT": mask_BT, "adv_BT": adv_BT}
    if metrics is None:
        metrics = surrogate(l_BT, batch, settings).metrics
    record = Recorder(settings, bands).update(
        step=0, minibatch=0, **tensors, metrics=metrics, evaluated_B=evaluated_B, **options
    )
    return {entry.name: getattr(record, entry.name) for entry in fields(record)}


def gradient(
    settings: Common, batch: Batch, logp_BT: Tensor, loss: Loss[Any] | None = None
) -> tuple[Surrogate, Tensor]:
    """What the objective returns, and the gradient of its loss by the log-probs."""
    leaf = logp_BT.clone().requires_grad_()
    out = surrogate(leaf, batch, settings, loss)
    out.loss.backward()
    return out, leaf.grad
