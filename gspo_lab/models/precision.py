"""The number format that the matrix products of a forward pass are computed in."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from gspo_lab.keys import Dtype


def computing_in(dtype: Dtype, device: str) -> AbstractContextManager[Any]:
    """A context in which matrix products on devices of the type `device` are computed in `dtype` (autocast).

    Weights and their gradients keep their own format.
    """
    return nullcontext() if dtype == "float32" else torch.autocast(device, getattr(torch, dtype))


def _grouped_mm(rows_NK: Tensor, weight_EKM: Tensor, *more: Any) -> Tensor:
    """The experts' matrix products as autocast has every other one. Torch has no rule for them (pytorch issue 174763):
    with float32 weights they are computed in float32, on a GPU one expert after the other."""
    device = rows_NK.device.type
    dtype = torch.get_autocast_dtype(device)
    with torch.autocast(device, enabled=False):
        return torch._grouped_mm(rows_NK.to(dtype), weight_EKM.to(dtype), *more)


_RULES = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
for _key in ("AutocastCPU", "AutocastCUDA", "AutocastXPU"):
    _RULES.impl("_grouped_mm", _grouped_mm, _key)  # type: ignore[no-untyped-call]
