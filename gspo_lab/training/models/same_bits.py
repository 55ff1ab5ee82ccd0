"""transformers' arithmetic of the built-in models with fewer passes over memory.

On a CPU in float32, where it was measured, the bits are the same, forward and backward: the same
operations in the same order, without copies, fills and factors of two. Elsewhere transformers
computes.

Shapes: N tokens, H hidden size, E experts, K of them per token, M = N x K, D the size of what is
normed, `_XD` whatever stands before it."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import grouped_mm, rms_norm
from transformers.integrations import moe, sdpa_attention
from transformers.models.qwen3 import modeling_qwen3
from transformers.models.qwen3_moe import modeling_qwen3_moe

THEIR_CHOICE = sdpa_attention.use_gqa_in_sdpa
THEIR_NORM = modeling_qwen3.Qwen3RMSNorm.forward


def install() -> None:
    """Have transformers' models compute so, in this process."""
    moe.ALL_EXPERTS_FUNCTIONS["grouped_mm"] = experts
    sdpa_attention.use_gqa_in_sdpa = share_keys
    modeling_qwen3.Qwen3RMSNorm.forward = norm
    modeling_qwen3_moe.Qwen3MoeRMSNorm.forward = norm


def applies(x: Tensor) -> bool:
    """Whether the bits of what is computed from `x` are known to be the same."""
    return x.type() == "torch.FloatTensor"


def share_keys(mask: Tensor | None, key: Tensor, value: Tensor) -> bool:
    """Whether query heads read their shared key where it lies, not a copy each."""
    return applies(key) or THEIR_CHOICE(mask, key, value)


def experts(layer: Any, x_NH: Tensor, chosen_NK: Tensor, weight_NK: Tensor) -> Any:
    """[N, H] of the chosen experts. The backward pass of `index_select` adds whole rows."""
    if layer.has_bias or layer.is_transposed or not applies(x_NH):
        return moe.grouped_mm_experts_forward(layer, x_NH, chosen_NK, weight_NK)
    sorted_M, place_M = chosen_NK.flatten().sort()
    end_E = sorted_M.bincount(minlength=layer.num_experts).cumsum(0, dtype=torch.int32)
    in_MH = x_NH.index_select(0, place_M // chosen_NK.shape[1])
    gates_MD = layer._apply_gate(grouped_mm(in_MH, layer.gate_up_proj.mT, offs=end_E))
    out_MH = grouped_mm(gates_MD, layer.down_proj.mT, offs=end_E)
    out_MH = out_MH * weight_NK.flatten().index_select(0, place_M)[:, None]
    return out_MH.index_select(0, place_M.argsort()).unflatten(0, chosen_NK.shape).sum(1)  # type: ignore[no-untyped-call]


def norm(layer: Any, x_XD: Tensor) -> Any:
    """x / sqrt(mean of squares + epsilon), times the weight."""
    if not applies(x_XD):
        return THEIR_NORM(layer, x_XD)
    if not torch.is_grad_enabled():
        return rms_norm(x_XD, layer.weight.shape, layer.weight, layer.variance_epsilon)
    return _Norm.apply(x_XD, x_XD, layer.weight, layer.variance_epsilon)  # type: ignore[no-untyped-call]


class _Norm(torch.autograd.Function):
    """The input comes twice, so that its two gradients are added in transformers' order."""

    @staticmethod
    def forward(ctx: Any, x_XD: Tensor, _: Tensor, weight_D: Tensor, epsilon: float) -> Tensor:
        scale_X1 = x_XD.square().mean(-1, keepdim=True).add_(epsilon).rsqrt_()
        unit_XD = x_XD * scale_X1
        ctx.save_for_backward(x_XD, weight_D, scale_X1, unit_XD)
        return weight_D * unit_XD

    @staticmethod
    def backward(ctx: Any, grad_XD: Tensor) -> tuple[Tensor | None, ...]:
        x_XD, weight_D, scale_X1, unit_XD = ctx.saved_tensors
        to_unit_XD = grad_XD * weight_D
        to_scale_X1 = (to_unit_XD * x_XD).sum(-1, keepdim=True)
        factor_X1 = to_scale_X1 * scale_X1.pow(3) / -len(weight_D)
        to_weight_D = (grad_XD * unit_XD).sum_to_size(weight_D.shape)
        return to_unit_XD.mul_(scale_X1), factor_X1 * x_XD, to_weight_D, None
