"""Sampling with a transformers model in this process: one prefill, then one forward pass per
position. A shared prompt is fed once; finished responses leave the batch. Shapes: B rows in the
batch, S positions fed, V vocabulary, L MoE layers, K experts per token.

Common random numbers: a response's key, the position and the vocabulary index are hashed into a
uniform number, the same in every batch and arm. The smallest draw is about 2^-53: only an entry
e^36 times less likely than the best can never be drawn. A large vocabulary's numbers are computed
in pieces that fit into a core's cache."""

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gspo_lab.common.plain_data import Integers
from gspo_lab.training.models.load import check_float32_head
from gspo_lab.training.models.routing import Routers
from gspo_lab.training.samplers.base import Request, Rollout, Sampling
from gspo_lab.training.samplers.stopping import Stopping

# The constants of splitmix64 (Steele, Lea, Flood 2014) as signed 64-bit integers; int64 products
# wrap as they should.
_GOLDEN = -7046029254386353131
_MIX_A = -4658895280553007687
_MIX_B = -7723592293110705685

AT_ONCE = {"cpu": 2**17, "gpu": 2**24}
"""Random numbers computed at once: on a CPU as many as its caches hold; "gpu" is every other
device.
"""


def _mix(x: Tensor) -> Tensor:
    """splitmix64's finaliser, in place."""
    x ^= _shift(x, 30)
    x *= _MIX_A
    x ^= _shift(x, 27)
    x *= _MIX_B
    x ^= _shift(x, 31)
    return x


def _shift(x: Tensor, bits: int) -> Tensor:
    """A logical right shift; `>>` alone would copy the sign bit."""
    shifted = x >> bits
    shifted &= (1 << (64 - bits)) - 1
    return shifted


def exponentials(key_B: Tensor, position_B: Tensor, vocabulary_V: Tensor) -> Tensor:
    """[B, V] float64 draws from Exp(1), one per response, position and vocabulary entry (int64
    inputs).

    The argmax of p / draw is a sample from p: the Gumbel-max trick with one logarithm less.
    """
    row_B = _mix(key_B + _mix(position_B * _GOLDEN))
    bits_BV = _shift(_mix(row_B[:, None] + vocabulary_V * _GOLDEN), 11)
    return bits_BV.double().add_(0.5).mul_(2.0**-53).log_().neg_()


def sample_by_argmax(p_BV: Tensor, key_B: Tensor, position_B: Tensor) -> Tensor:
    """[B] entries sampled from the probabilities: the argmax of p / `exponentials`, piece by piece;
    0 if p is NaN.
    """
    B, V = p_BV.shape
    at_once = AT_ONCE["cpu" if p_BV.device.type == "cpu" else "gpu"]
    width = min(V, at_once)
    rows = max(1, at_once // width)
    vocabulary_V = torch.arange(V, device=p_BV.device)
    best_B = torch.full_like(key_B, -torch.inf, dtype=torch.float64)
    winner_B = torch.zeros_like(key_B)
    for top in range(0, B, rows):
        part = slice(top, top + rows)
        for column in range(0, V, width):
            noise_BV = exponentials(
                key_B[part], position_B[part], vocabulary_V[column : column + width]
            )
            score_B, place_B = (p_BV[part, column : column + width] / noise_BV).max(dim=1)
            ahead_B = score_B > best_B[part]
            best_B[part] = score_B.where(ahead_B, best_B[part])
            winner_B[part] = (place_B + column).where(ahead_B, winner_B[part])
    return winner_B


LOGITS_AT_ONCE = 2**23
"""The most logits sampled from at once. Temporary values take several times their memory."""

COMPACT_BELOW = 0.75
"""The batch shrinks when fewer than this share of its rows is unfinished."""


class TransformersSampler:
    """Samples from `model`, at most `rows` responses at once; from a copy if `dtype` differs from
    the model's.

    `float32_head` computes the logits in float32, with the model's own weights of the head.
    """

    returns_routes = True
    continues = True

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        dtype: str | None = None,
        rows: int = 512,
        float32_head: bool = False,
    ) -> None:
        self._source = model
        self.separate = dtype is not None and getattr(torch, dtype) != model.dtype
        if self.separate:
            assert dtype is not None
            model = copy.deepcopy(model).to(getattr(torch, dtype)).requires_grad_(False)
        self._model = model
        self._tokenizer = tokenizer
        self._routers = Routers.of(model)
        self._rows = rows
        self._stopping = Stopping.of(tokenizer, model)
        self._head: tuple[Tensor, Tensor | None] | None = None
        if float32_head:
            check_float32_head(self._source, "rollout.float32_head")
            head = self._source.get_output_embeddings()
            # float() returns a float32 tensor itself, so trained weights stay current. Frozen
            # weights of another format are copied and never change.
            self._head = (
                head.weight.detach().float(),
                None if head.bias is None else head.bias.detach().float(),
            )

    @torch.no_grad()
    def sample(
        self, requests: Sequence[Request], sampling: Sampling, *, routes: bool = False
    ) -> list[Rollout]:
        """One rollout per request, in order; with `routes` the experts of each position."""
        training = self._model.training
        self._model.eval()
        rollouts: dict[int, Rollout] = {}
        # Batch prompts of similar lengths, for less padding; the draws do not depend on the batch.
        order = sorted(range(len(requests)), key=lambda index: len(requests[index].fed_ids))
        for start in range(0, len(order), self._rows):
            part = order[start : start + self._rows]
            drawn = self._sample([requests[index] for index in part], sampling, routes)
            for index, rollout in zip(part, drawn, strict=True):
                rollouts[index] = rollout
        self._model.train(training)
        return [rollouts[index] for index in range(len(requests))]

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the trainer's weights if the sampler has a separate model."""
        if self.separate:
            for mine, source in zip(
                self._model.parameters(), self._source.parameters(), strict=True
            ):
                if source.requires_grad:  # weights that adapters leave frozen never change
                    mine.copy_(source)

    def pause(self) -> None:
        """Frees nothing: the copy is small compared with training."""

    def facts(self) -> dict[str, str]:
        """No facts: the engine records them."""
        return {}

    def _sample(self, requests: list[Request], sampling: Sampling, routes: bool) -> list[Rollout]:
        device = self._model.device
        stopping = self._stopping(sampling.stop)
        responses = [_Response(request, sampling.max_tokens) for request in requests]
        prompts = list(dict.fromkeys(request.fed_ids for request in requests))
        place_of = {prompt: place for place, prompt in enumerate(prompts)}
        shared_by_B = torch.tensor(
            [place_of[request.fed_ids] for request in requests], device=device
        )
        input_BS, attention_BS = self._left_padded(prompts, device)
        position_BS = (attention_BS.cumsum(dim=1) - 1).clamp(min=0)
        key_B = torch.tensor([request.noise_key for request in requests], device=device)
        # The offset of the next token in its response, which the random numbers depend on.
        offset_B = torch.tensor([len(request.given_ids) for request in requests], device=device)
        rows = responses
        cache = None
        while True:
            tapped = self._routers.tap(*input_BS.shape) if self._routers and routes else None
            with tapped or nullcontext():
                logits_BV, cache = self._next_logits(
                    input_ids=input_BS,
                    attention_mask=attention_BS,
                    position_ids=position_BS,
                    past_key_values=cache,
                    use_cache=True,
                )
            natural_BSLK = None if tapped is None else tapped.natural_BSLK.to(torch.int16)
            if len(logits_BV) < len(rows):  # from now on a row is a response, not a prompt
                cache.batch_select_indices(shared_by_B)
                logits_BV = logits_BV[shared_by_B]
                attention_BS = attention_BS[shared_by_B]
                natural_BSLK = None if natural_BSLK is None else natural_BSLK[shared_by_B]
            if natural_BSLK is not None:
                _keep_routes(rows, natural_BSLK, attention_BS[:, -input_BS.shape[1] :].bool())
            chosen_B, logp_B = draw(logits_BV, sampling, key_B, offset_B)
            for response, token, logp in zip(rows, chosen_B.tolist(), logp_B.tolist(), strict=True):
                if not response.over:
                    response.add(token, logp, stopping)
            places = [place for place, response in enumerate(rows) if not response.over]
            if not places:
                return [response.rollout(stopping) for response in responses]
            if len(places) < COMPACT_BELOW * len(rows):
                keep = torch.tensor(places, device=device)
                cache.batch_select_indices(keep)
                attention_BS = attention_BS[keep]
                chosen_B = chosen_B[keep]
                key_B = key_B[keep]
                offset_B = offset_B[keep]
                rows = [rows[place] for place in places]
            input_BS = chosen_B[:, None]
            offset_B = offset_B + 1
            attention_BS = torch.cat([attention_BS, attention_BS.new_ones(len(rows), 1)], dim=1)
            position_BS = attention_BS.sum(dim=1, keepdim=True) - 1

    def _next_logits(self, **fed: Any) -> tuple[Tensor, Any]:
        """The float32 logits [B, V] of the next token, and the cache with what was fed."""
        if self._head is None:
            output = self._model(**fed, logits_to_keep=1)
            return output.logits[:, -1].float(), output.past_key_values
        output = self._model.base_model(**fed)
        state_BH = output.last_hidden_state[:, -1].float()
        return torch.nn.functional.linear(state_BH, *self._head), output.past_key_values

    def _left_padded(self, prompts: Sequence[Integers], device: Any) -> tuple[Tensor, Tensor]:
        longest = max(map(len, prompts))
        ids_BS = torch.full((len(prompts), longest), self._tokenizer.pad_token_id)
        attention_BS = torch.zeros_like(ids_BS)
        for row, prompt in enumerate(prompts):
            ids_BS[row, longest - len(prompt) :] = torch.tensor(prompt)
            attention_BS[row, longest - len(prompt) :] = 1
        return ids_BS.to(device), attention_BS.to(device)


class _Response:
    """A response that is being drawn. It begins with the request's given tokens."""

    def __init__(self, request: Request, max_tokens: int) -> None:
        self._request = request
        self._limit = min(max_tokens, request.max_tokens or max_tokens)
        self._ids = list(request.given_ids)
        self._logprobs: list[float] = []
        self._truncated = False
        self.routes: list[npt.NDArray[np.int16]] = []
        self.over = False

    def add(self, token: int, logp: float, stopping: Stopping) -> None:
        """Append a token, and end the response if it is the last."""
        self._ids.append(token)
        self._logprobs.append(logp)
        self.over = stopping.has_ended(self._ids, len(self._request.given_ids))
        if not self.over and len(self._logprobs) == self._limit:
            self.over = True
            self._truncated = True

    def rollout(self, stopping: Stopping) -> Rollout:
        """The finished response as a rollout."""
        given_tokens = len(self._request.given_ids)
        return Rollout(
            request=self._request,
            response_ids=self._ids[given_tokens:],
            logprobs=self._logprobs,
            text=stopping.text(self._ids, given_tokens),
            truncated=self._truncated,
            routes=np.concatenate(self.routes) if self.routes else None,
        )


def _keep_routes(rows: list[_Response], routes_BSLK: Tensor, mask_BS: Tensor) -> None:
    """Append to each unfinished response the routes of its positions in the mask."""
    passed = zip(rows, routes_BSLK.cpu().numpy(), mask_BS.cpu().numpy(), strict=True)
    for response, routes_SLK, mask_S in passed:
        if not response.over:
            response.routes.append(routes_SLK[mask_S])


def draw(
    logits_BV: Tensor, sampling: Sampling, key_B: Tensor, position_B: Tensor
) -> tuple[Tensor, Tensor]:
    """The drawn tokens [B], at `position_B` of their responses, and their log-probs [B].

    Log-probs are those of the distribution drawn from; greedy ones are of temperature 1. Tokens are
    the argmax of p / Exp(1) noise."""
    at_once = max(1, LOGITS_AT_ONCE // logits_BV.shape[1])
    columns = [torch.split(x_B, at_once) for x_B in (logits_BV, key_B, position_B)]
    drawn = [
        _draw(logits, sampling, key, place) for logits, key, place in zip(*columns, strict=True)
    ]
    chosen, logp = zip(*drawn, strict=True)
    return torch.cat(chosen), torch.cat(logp)


def _draw(
    logits_BV: Tensor, sampling: Sampling, key_B: Tensor, position_B: Tensor
) -> tuple[Tensor, Tensor]:
    logp_BV = (logits_BV / (sampling.temperature or 1.0)).log_softmax(dim=-1)
    if sampling.temperature == 0:
        chosen_B = logp_BV.argmax(dim=-1)
    else:
        if sampling.top_p < 1:
            logp_BV = _nucleus(logp_BV, sampling.top_p)
        chosen_B = sample_by_argmax(logp_BV.exp(), key_B, position_B)
    return chosen_B, logp_BV.gather(1, chosen_B[:, None])[:, 0]


def _nucleus(logp_BV: Tensor, top_p: float) -> Tensor:
    """Log-probs renormalised over the smallest set of tokens whose probability reaches top_p; -inf
    elsewhere.
    """
    sorted_BV, order_BV = logp_BV.sort(dim=-1, descending=True)
    before_BV = sorted_BV.exp().cumsum(dim=-1) - sorted_BV.exp()
    out_BV = sorted_BV.masked_fill(before_BV >= top_p, -torch.inf).log_softmax(dim=-1)
    return torch.empty_like(logp_BV).scatter_(1, order_BV, out_BV)
