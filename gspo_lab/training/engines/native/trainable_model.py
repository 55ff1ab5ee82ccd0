"""A model in training: weights, optimizer, updates, and how a large one spares memory. A tied
embedding adds its gradient to the head's in place. Shapes: B rows, S positions, H hidden size."""

import ctypes
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from gspo_lab.common.plain_data import JsonObject, OptionalFloat
from gspo_lab.recording.records.update import optimizer_columns
from gspo_lab.study.schema import UpdateTable
from gspo_lab.training.models.lora import load_trained_state, trained_state

M_MMAP_THRESHOLD = -3
"""mallopt(3): from this size on a piece of memory is mapped for itself, and goes back to the system
when freed.
"""

PIECE = 2**20
"""Bytes. Of its own accord glibc raises the threshold to the largest piece that was freed, up to 32
MiB, and keeps what is smaller: 0.2 to 0.3 GB of activations and logits, in every peak that follows
(docs/results/performance.md).
"""


def trim_freed_memory() -> None:
    """From now on, in this process; other C libraries than glibc do as they do."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, PIECE)


def accumulate_tied_gradient(model: Any) -> None:
    """Have a tied embedding add to its head's gradient, from now on. Embeddings that do more than
    look rows up stay as they are."""
    embedding = model.get_input_embeddings()
    head = model.get_output_embeddings()
    tied = head is not None and head.weight is embedding.weight
    if tied and type(embedding) is torch.nn.Embedding and embedding.max_norm is None:
        embedding.register_forward_hook(_detour)


def _detour(embedding: torch.nn.Embedding, args: tuple[Tensor, ...], rows_BSH: Tensor) -> Tensor:
    if not rows_BSH.requires_grad:
        return rows_BSH
    # Whatever wants a gradient: the weight must not, or its head's would wait for this one.
    anchor = torch.zeros((), requires_grad=True)
    rows: Tensor = _Rows.apply(anchor, rows_BSH.detach(), args[0], embedding)  # type: ignore[no-untyped-call]
    return rows


class _Rows(torch.autograd.Function):
    """The rows as they are; backward, their gradient goes to where the weight's own already is."""

    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, rows_BSH: Tensor, ids_BS: Tensor, embedding: torch.nn.Embedding
    ) -> Tensor:
        ctx.ids_BS = ids_BS
        ctx.embedding = embedding
        return rows_BSH.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, ...]:
        weight = ctx.embedding.weight
        real_BS = torch.ones_like(ctx.ids_BS, dtype=torch.bool)
        if ctx.embedding.padding_idx is not None:
            real_BS = ctx.ids_BS != ctx.embedding.padding_idx
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        weight.grad.index_add_(0, ctx.ids_BS[real_BS], grads[0][real_BS].to(weight.dtype))
        return None, None, None, None


FIRST_SCALE = 2.0**16
DOUBLED_AFTER = 2000
"""The first factor of a loss in float16, and after how many updates without overflow it doubles (as
torch's).
"""

LARGE = 2**26
"""Parameters from which on memory and its traffic decide what a step costs."""


def is_large(parameters: Iterable[Tensor]) -> bool:
    """Whether there are `LARGE` parameters or more."""
    return sum(map(torch.numel, parameters)) >= LARGE


class TrainableModel:
    """A model with its AdamW, whose learning rate rises over the first updates. With `dtype =
    "float16"` the loss is scaled. `optimizer = "adamw-8bit"` needs bitsandbytes and a GPU."""

    def __init__(self, model: Any, settings: UpdateTable) -> None:
        self.model = model
        self.updates = 0
        self.scale = FIRST_SCALE if settings.dtype == "float16" else 1.0
        self._since_overflow = 0
        self.max_grad_norm = settings.max_grad_norm
        self._settings = settings
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer: torch.optim.Optimizer
        if settings.optimizer == "adamw-8bit":
            from bitsandbytes.optim import AdamW8bit

            self.optimizer = AdamW8bit(self._parameters, **settings.adamw)
        elif not is_large(self._parameters):
            self.optimizer = torch.optim.AdamW(self._parameters, foreach=True, **settings.adamw)
        else:  # `foreach` makes copies as large as the model
            self.optimizer = torch.optim.AdamW(self._parameters, fused=True, **settings.adamw)
            accumulate_tied_gradient(model)

    def zero_grad(self) -> None:
        """Free the gradient and its memory, which sampling needs."""
        self.optimizer.zero_grad(set_to_none=True)

    def zero_gradient(self) -> None:
        """A gradient of exactly 0, as a pass over responses without advantage would leave: momentum
        and decay go on.
        """
        for parameter in self._parameters:
            parameter.grad = torch.zeros_like(parameter)

    def backward(self, loss: Tensor) -> None:
        """Gather the gradient of the scaled loss."""
        (loss * self.scale if self.scale != 1 else loss).backward()  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def unscale(self) -> bool:
        """Divide the gathered gradient by the scale. False where it overflowed: it is forgotten,
        the scale halved, and the passes are to be made again."""
        if self.scale == 1:
            return True
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        if not torch.stack(torch._foreach_norm(gradients)).isfinite().all():
            self.scale /= 2
            self._since_overflow = 0
            self.zero_grad()
            return False
        torch._foreach_div_(gradients, self.scale)
        self._since_overflow += 1
        if self._since_overflow % DOUBLED_AFTER == 0:
            self.scale *= 2
        return True

    def step(self, loss: float, *, measure: bool = False) -> tuple[dict[str, OptionalFloat], bool]:
        """Clip the gradient that has gathered, step along it, forget it; with a number that is not
        finite, no step.

        The record's columns, and whether loss, gradient and trained weights are finite. `measure`:
        the update's own norm too.
        """
        rate = self._settings.rate(self.updates)
        grad_norm = float(
            torch.nn.utils.clip_grad_norm_(self._parameters, self.max_grad_norm, foreach=True)
        )
        columns = optimizer_columns(grad_norm, rate)
        finite = math.isfinite(grad_norm) and math.isfinite(loss)
        if finite:
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            norm_before = self.weight_norm() if measure else None
            self.optimizer.step()
            if norm_before and self._settings.optimizer == "adamw":
                columns["relative_update_norm"] = self._update_norm(rate) / norm_before
        self.zero_grad()
        self.updates += 1
        weight_norm = self.weight_norm()
        columns["weight_norm"] = weight_norm
        return columns, finite and math.isfinite(weight_norm)

    @torch.no_grad()
    def _update_norm(self, rate: float) -> float:
        """L2 norm of AdamW's last update, from its moments m and v after k updates. It needs no
        copy of the weights: it overwrites the gradients.

        W' = (1 - rate d) W - rate c m / (sqrt(v) + e), with weight decay d, c = sqrt(1 - b2^k) /
        (1 - b1^k) and e = eps sqrt(1 - b2^k). So W' - W = -rate c / (1 - rate d) x (m / (sqrt(v)
        + e) + d W' / c).
        """
        adamw = self.optimizer.defaults
        beta1, beta2 = adamw["betas"]
        decay = adamw["weight_decay"]
        square = 0.0
        for parameter in self._parameters:
            if parameter.grad is None:
                continue
            moments = self.optimizer.state[parameter]
            updates = float(moments["step"])
            root = math.sqrt(1 - beta2**updates)
            scale = root / (1 - beta1**updates)
            step = torch.sqrt(moments["exp_avg_sq"], out=parameter.grad).add_(adamw["eps"] * root)
            torch.div(moments["exp_avg"], step, out=step).add_(parameter, alpha=decay / scale)
            flat = step.flatten()
            square += scale**2 * float(flat.dot(flat))
        return math.sqrt(square) * float(rate / (1 - rate * decay))

    @torch.no_grad()
    def weight_norm(self) -> float:
        """L2 norm of all trained weights; not finite where one of them is not."""
        return float(torch.stack(torch._foreach_norm(self._parameters)).norm())

    def state(self) -> JsonObject:
        """All that a run needs to go on: trained weights, optimizer, updates so far."""
        return {
            "model": trained_state(self.model),
            "optimizer": self.optimizer.state_dict(),
            "updates": self.updates,
            "scale": (self.scale, self._since_overflow),
        }

    def load(self, state: JsonObject) -> None:
        """Put back what `state` gave."""
        load_trained_state(self.model, state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates = state["updates"]
        self.scale, self._since_overflow = state["scale"]
