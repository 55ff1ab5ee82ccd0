"""From hidden states to the sampled tokens' log-probs, without a batch's [B, T, V] logits: a large
vocabulary's are computed block by block, and used while they are in the cache.

Shapes: B rows, T response tokens, S positions, H hidden size, N response tokens of the batch, n
those with a gradient, V vocabulary, v entries of a block."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gspo_lab.training.models.load import plain_head

AT_ONCE = 2**24
"""Bytes of float32 logits that are computed in one piece, by plain autograd."""

KEPT = 2**27
"""Bytes of float32 logits that wait for the backward pass; what is more is computed again there."""

BLOCK = {"cpu": 2**20, "gpu": 2**24}
"""Logits of a block: on a CPU what its caches hold; "gpu" is every other device."""


def token_logprobs(
    model: Any,
    inputs: dict[str, Any],
    target_BT: Tensor,
    mask_BT: Tensor,
    *,
    temperature: float,
    entropy: bool,
    logit_gradient: bool = False,
    place_BT: Tensor | None = None,
    float32_head: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Log-probs [B, T] of `target_BT` under logits / temperature, 0 off the mask.

    On request also the entropies [B, T] in nats, and |e_y - p| [B, T], the norm of the gradient of
    log p_y by the logits / temperature, which has no gradient itself. The last T positions predict
    the targets, or `place_BT` of all positions. That, and a float32 head, take a plain head."""
    length = target_BT.shape[1]
    if plain_head(model):
        hidden_BSH = model.base_model(**inputs, use_cache=False).last_hidden_state
        head = model.get_output_embeddings()
        weights = (head.weight, head.bias)
        if place_BT is None:
            states_NH = hidden_BSH[:, -length:][mask_BT]
        else:
            states_NH = hidden_BSH.flatten(0, 1)[place_BT[mask_BT]]
    else:
        logits_BTV = model(**inputs, use_cache=False, logits_to_keep=length).logits
        states_NH = logits_BTV[mask_BT]
        weights = (None, None)
    target_N = target_BT[mask_BT]
    size = 4 * len(target_N) * model.config.get_text_config().vocab_size
    with torch.autocast(states_NH.device.type, enabled=False) if float32_head else nullcontext():
        if float32_head:
            states_NH = states_NH.float()
        if size <= AT_ONCE:
            logp_NV = (
                _Blocks(states_NH, *weights, temperature).logits(slice(None)).log_softmax(dim=-1)
            )
            logp_N = logp_NV.gather(1, target_N[:, None])[:, 0]
            entropy_N = -(logp_NV.exp() * logp_NV).sum(dim=-1) if entropy else None
            prob_norm_N = None
            if logit_gradient:
                prob_norm_N = torch.linalg.vector_norm(logp_NV.detach().exp(), dim=-1)
        else:
            keep = weights[0] is not None and torch.is_grad_enabled() and size <= KEPT
            logp_N, entropy_N, prob_norm_N = _InBlocks.apply(
                states_NH, *weights, target_N, temperature, entropy, logit_gradient, keep
            )  # type: ignore[no-untyped-call]
    zeros_BT = torch.zeros(mask_BT.shape, device=mask_BT.device)
    entropy_BT = None if entropy_N is None else zeros_BT.masked_scatter(mask_BT, entropy_N)
    gradient_BT = None
    if prob_norm_N is not None:
        # |e_y - p|^2 = 1 - 2 p_y + sum p^2
        square_N = 1 - 2 * logp_N.detach().exp() + prob_norm_N.square()
        gradient_BT = zeros_BT.masked_scatter(mask_BT, square_N.clamp(min=0).sqrt())
    return zeros_BT.masked_scatter(mask_BT, logp_N), entropy_BT, gradient_BT


@dataclass(frozen=True, slots=True)
class _Blocks:
    """A head as blocks of logits / temperature. Without a weight the states are logits already."""

    states_NH: Tensor
    weight_VH: Tensor | None
    bias_V: Tensor | None
    temperature: float

    def columns(self) -> list[slice]:
        """The blocks' entries of the vocabulary."""
        rows, width = self.states_NH.shape
        entries = width if self.weight_VH is None else len(self.weight_VH)
        step = max(1, BLOCK["cpu" if self.states_NH.device.type == "cpu" else "gpu"] // rows)
        return [slice(start, min(start + step, entries)) for start in range(0, entries, step)]

    def logits(self, columns: slice) -> Tensor:
        """[N, v], its own memory."""
        if self.weight_VH is None:
            logits_Nv = self.states_NH[:, columns].to(torch.float32, copy=True)
        else:
            bias_v = None if self.bias_V is None else self.bias_V[columns].to(self.states_NH.dtype)
            logits_Nv = torch.nn.functional.linear(
                self.states_NH, self.weight(columns), bias_v
            ).float()
        return logits_Nv.div_(self.temperature)

    def weight(self, columns: slice) -> Tensor:
        assert self.weight_VH is not None
        return self.weight_VH[columns].to(self.states_NH.dtype)


def _places(target_N: Tensor, columns: slice) -> tuple[Tensor, Tensor]:
    """Which targets lie in a block, and where there; any place for the others, so that nobody waits
    for a GPU.
    """
    here_N = (target_N >= columns.start) & (target_N < columns.stop)
    return here_N, (target_N - columns.start).clamp(0, columns.stop - columns.start - 1)[:, None]


class _InBlocks(torch.autograd.Function):
    """Log-probs and entropies of targets and norms of the probabilities, block by block.

    Sums are rescaled as larger logits come (Milakov and Gimelshein, arXiv 1805.02867). One backward
    pass at most: it takes the kept logits apart, so that they make room for the weight's gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        states_NH: Tensor,
        weight_VH: Tensor | None,
        bias_V: Tensor | None,
        target_N: Tensor,
        temperature: float,
        entropy: bool,
        prob_norm: bool,
        keep: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        device = states_NH.device.type
        if weight_VH is not None and torch.is_autocast_enabled(device):
            states_NH = states_NH.to(torch.get_autocast_dtype(device))
        head = _Blocks(states_NH, weight_VH, bias_V, temperature)
        logit_N = torch.zeros(len(target_N), device=target_N.device)
        largest_N = torch.full_like(logit_N, -torch.inf)
        sum_N = logit_N
        weighted_N = logit_N
        square_N = logit_N
        logits = []
        for columns in head.columns():
            logits_Nv = head.logits(columns)
            before_N = largest_N
            largest_N = largest_N.maximum(logits_Nv.amax(dim=1))
            rescale_N = (before_N - largest_N).exp()
            exp_Nv = (logits_Nv - largest_N[:, None]).exp_()
            sum_N = sum_N * rescale_N + exp_Nv.sum(dim=1)
            if prob_norm:
                block_N = torch.linalg.vector_norm(exp_Nv, dim=1)
                square_N = square_N * rescale_N.square() + block_N.square()
            if entropy:
                weighted_N = weighted_N * rescale_N + exp_Nv.mul_(logits_Nv).sum(dim=1)
            here_N, place_N1 = _places(target_N, columns)
            logit_N = torch.where(here_N, logits_Nv.gather(1, place_N1)[:, 0], logit_N)
            if keep:
                logits.append(logits_Nv)
        logsum_N = largest_N + sum_N.log()
        entropy_N = logsum_N - weighted_N / sum_N if entropy else None
        ctx.save_for_backward(states_NH, weight_VH, bias_V, target_N, logsum_N, entropy_N)
        # An entropy that no loss reads costs the backward pass nothing.
        ctx.set_materialize_grads(False)
        ctx.temperature = temperature
        ctx.kept = logits
        prob_norm_N = square_N.sqrt() / sum_N if prob_norm else None
        if prob_norm_N is not None:
            ctx.mark_non_differentiable(prob_norm_N)
        return logit_N - logsum_N, entropy_N, prob_norm_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        grad_logp_N, grad_entropy_N, _ = grads
        assert grad_logp_N is not None
        states_NH, weight_VH, bias_V, target_N, logsum_N, entropy_N = ctx.saved_tensors
        to_states, to_weight, to_bias = ctx.needs_input_grad[:3]
        # A clipped token, and one without advantage, has no gradient: nothing is computed for it.
        used_N = (
            grad_logp_N != 0
            if grad_entropy_N is None
            else (grad_logp_N != 0) | (grad_entropy_N != 0)
        )
        rows_n = used_N.nonzero()[:, 0]
        grad_n = (grad_logp_N[rows_n] / ctx.temperature)[:, None]
        target_n = target_N[rows_n]
        every = _Blocks(states_NH, weight_VH, bias_V, ctx.temperature)
        some = _Blocks(states_NH[rows_n], weight_VH, bias_V, ctx.temperature)
        grad_states_NH = (
            torch.zeros(states_NH.shape, device=states_NH.device) if to_states else None
        )
        grad_weight_VH = torch.empty_like(weight_VH) if to_weight else None
        grad_bias_V = torch.empty_like(bias_V) if to_bias else None
        grad_states_nH = torch.zeros(some.states_NH.shape, device=states_NH.device)
        for columns in reversed(every.columns()):
            logits_nv = ctx.kept.pop()[rows_n] if ctx.kept else some.logits(columns)
            logp_nv = logits_nv.sub_(logsum_N[rows_n, None])
            # Of log p: 1 at the target less the softmax p. Of the entropy H: -p (log p + H).
            pull_n = -grad_n
            if grad_entropy_N is not None:
                grad_entropy_n = (grad_entropy_N[rows_n] / ctx.temperature)[:, None]
                pull_n = pull_n - grad_entropy_n * (logp_nv + entropy_N[rows_n, None])
            grad_nv = logp_nv.exp_().mul_(pull_n)
            here_n, place_n1 = _places(target_n, columns)
            grad_nv.scatter_add_(1, place_n1, grad_n * here_n[:, None])
            if grad_bias_V is not None:
                grad_bias_V[columns] = grad_nv.sum(dim=0)
            if weight_VH is None:
                grad_states_nH[:, columns] = grad_nv
                continue
            grad_nv = grad_nv.to(states_NH.dtype)
            if to_states:
                grad_states_nH += grad_nv @ some.weight(columns)
            if grad_weight_VH is not None:
                block_vH = grad_weight_VH[columns]
                if block_vH.dtype == grad_nv.dtype:
                    torch.mm(grad_nv.T, some.states_NH, out=block_vH)
                else:
                    block_vH.copy_(grad_nv.T @ some.states_NH)
        if grad_states_NH is not None:
            grad_states_NH[rows_n] = grad_states_nH
        return grad_states_NH, grad_weight_VH, grad_bias_V, None, None, None, None, None
