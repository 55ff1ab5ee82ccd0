"""One gradient for an embedding that is the output head too.

Autograd would make two of the vocabulary's size and add them up in a third. Here the head's is the only one: the
embedding's few rows are added to it in place, once it is there. Shapes: B rows, S positions, H hidden size.
"""

from typing import Any

import torch
from torch import Tensor


def spare_tied_gradient(model: Any) -> None:
    """Have a tied embedding add to its head's gradient, from now on. Embeddings that do more than look rows up stay as
    they are."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    tied = head is not None and head.weight is embedding.weight
    if tied and type(embedding) is torch.nn.Embedding and embedding.max_norm is None:
        embedding.register_forward_hook(_detour)


def _detour(embedding: torch.nn.Embedding, args: tuple[Tensor, ...], rows_BSH: Tensor) -> Tensor:
    if not rows_BSH.requires_grad:
        return rows_BSH
    # Whatever wants a gradient: the weight must not, or its head's would wait for this one.
    anchor = torch.zeros((), requires_grad=True)
    found: Tensor = _Rows.apply(anchor, rows_BSH.detach(), args[0], embedding)  # type: ignore[no-untyped-call]
    return found


class _Rows(torch.autograd.Function):
    """The rows as they are; backward, their gradient goes to where the weight's own already is."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, rows_BSH: Tensor, ids_BS: Tensor, embedding: torch.nn.Embedding) -> Tensor:
        ctx.ids_BS, ctx.embedding = ids_BS, embedding
        return rows_BSH.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, ...]:
        weight, real_BS = ctx.embedding.weight, torch.ones_like(ctx.ids_BS, dtype=torch.bool)
        if ctx.embedding.padding_idx is not None:
            real_BS = ctx.ids_BS != ctx.embedding.padding_idx
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        weight.grad.index_add_(0, ctx.ids_BS[real_BS], grads[0][real_BS].to(weight.dtype))
        return None, None, None, None
