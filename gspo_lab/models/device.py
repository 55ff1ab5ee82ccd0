"""Devices, by the names that torch knows: `cpu`, `cuda`, `cuda:1`, `xpu`, or that of an installed backend."""

import warnings

import torch

from gspo_lab.errors import LabError
from gspo_lab.keys import Dtype
from gspo_lab.models.check import first_line
from gspo_lab.models.load import computing_in


def check_name(name: str) -> None:
    """LabError for a device that torch does not know by that name, whether it is there or not."""
    if name == "auto":
        return
    try:
        if hasattr(torch.get_device_module(torch.device(name)), "is_available"):
            return
    except RuntimeError:  # no such name, or none to compute on ("meta")
        pass
    raise LabError(f"device = '{name}': torch knows no such device; use 'auto', 'cpu', 'cuda' or 'cuda:1'")


def device_of(name: str) -> torch.device:
    """The device of that name; `auto` is CUDA where there is a GPU, else the CPU. LabError where there is none here."""
    check_name(name)
    device = torch.device(name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu")
    module = torch.get_device_module(device)
    count = module.device_count() if module.is_available() else 0
    if (device.index or 0) >= count:
        many = f"{count} of them" if count else "no GPU" if device.type == "cuda" else "none"
        raise LabError(f"device = '{name}': torch sees {many} here; use device = 'auto' or 'cpu'")
    try:
        torch.ones(1, dtype=torch.float64, device=device)
    except (RuntimeError, TypeError) as error:  # of "mps"
        raise LabError(f"device = '{name}': it has no float64, in which tokens are drawn; use 'cpu'") from error
    return device


def check_dtype(key: str, dtype: Dtype, device: torch.device) -> None:
    """LabError where a device cannot compute in `dtype`, with and without autocast, forward and backward."""
    if dtype == "float32":
        return
    half, reason = getattr(torch, dtype), "its autocast gives another precision"
    try:
        with warnings.catch_warnings(), computing_in(dtype, device.type):
            warnings.simplefilter("ignore")  # autocast warns where it does not know the precision, and does nothing
            weight = torch.ones(8, 8, device=device, requires_grad=True)
            product = weight @ weight
            sum_of_both = (product.float() + (weight.to(half) @ weight.to(half)).float()).sum()
            torch.autograd.grad(sum_of_both, weight)
            if product.dtype == half:
                return
    except Exception as error:  # torch raises RuntimeError, AssertionError, NotImplementedError
        reason = first_line(error)
    raise LabError(f"{key} = '{dtype}': the device '{device}' cannot compute in it ({reason}); use 'float32'")
