"""In which format a forward pass computes, experts included."""

from typing import Any

import torch
from tiny_moe import build, tokens

from gspo_lab.models.load import computing_in


def products(model: Any, dtype: Any) -> set[torch.dtype]:
    """The formats that the experts' matrix products of one forward pass come in."""
    seen: set[torch.dtype] = set()
    model.model.layers[0].mlp.experts.act_fn.register_forward_pre_hook(lambda _, x: seen.add(x[0].dtype))
    with computing_in(dtype, "cpu"):
        model(input_ids=tokens()).logits.float().sum().backward()
    return seen


def test_experts_compute_in_the_format_of_the_forward_pass() -> None:
    model = build("qwen3_moe")
    assert products(model, "float32") == {torch.float32}
    model = build("qwen3_moe")
    assert products(model, "bfloat16") == {torch.bfloat16}, "as every other matrix product"
    assert {p.grad.dtype for p in model.parameters()} == {torch.float32}
