"""The policy being trained: log-probs of responses, and what its routers chose. Shapes as in
experience.py.

A prompt that several responses share is computed once. They lie behind it in one row:

    prompt | response 1 | response 2 | ...

Every response attends to the prompt and to itself, and takes up the positions right behind the
prompt.

Log-probs and gradients are those of separate rows, but for rounding. G different prompts, P prompt
columns, C columns of a row with all its responses."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gspo_lab.common.keys import Dtype
from gspo_lab.training.engines.native.experience import (
    Experience,
    Microbatch,
    microbatch_slice,
    microbatches,
)
from gspo_lab.training.engines.native.lm_head import token_logprobs
from gspo_lab.training.engines.native.trainable_model import is_large
from gspo_lab.training.models.load import check_float32_head, computing_in, plain_head
from gspo_lab.training.models.lora import adapters_off
from gspo_lab.training.models.routing import Routers
from gspo_lab.training.models.shapes import MASKED, WORTH
from gspo_lab.training.objectives.losses import Metrics

LONGEST = 4096
"""Columns of a row: the mask has their square."""


@dataclass(frozen=True, slots=True)
class SharedPrompts:
    """What a model is fed: G rows of C columns, for B rows of S input positions."""

    inputs: dict[str, Tensor]
    place_BS: Tensor
    """Where each input position lies in the flattened [G x C]; padding lies anywhere in it."""

    def spread(self, values_GC: Tensor) -> Tensor:
        """[G, C, ...] of what is fed as [B, S, ...] of the separate rows."""
        return values_GC.flatten(0, 1)[self.place_BS]

    def gather_routes(self, routes_BSLK: Tensor, real_BS: Tensor) -> tuple[Tensor, Tensor] | None:
        """The routes of separate rows as [G, C, L, K], and the mask [G, C] of places that have one.

        None where rows with one prompt have other routes in it.
        """
        routes_M = routes_BSLK[real_BS]
        place_M = self.place_BS[real_BS]
        shape = (*self.inputs["input_ids"].shape, *routes_BSLK.shape[2:])
        routes_GCLK = routes_BSLK.new_full(shape, -1)
        routes_GCLK.flatten(0, 1)[place_M] = routes_M
        if not torch.equal(routes_GCLK.flatten(0, 1)[place_M], routes_M):
            return None
        return routes_GCLK, routes_GCLK[..., 0, 0] >= 0


def can_share(model: Any) -> bool:
    """Whether the model's attention takes the mask of shared prompts: on a CPU, where this was
    measured, and without windows.
    """
    config = model.config.get_text_config()
    layers = set(getattr(config, "layer_types", None) or ["full_attention"])
    return bool(
        model.device.type == "cpu"
        and config.model_type in MASKED
        and config._attn_implementation == "sdpa"
        and layers == {"full_attention"}
        and not (config.model_type == "mixtral" and config.sliding_window)
    )


def share_prompts(part: Microbatch) -> SharedPrompts | None:
    """The rows of a micro-batch, on the CPU, with every prompt once; None if that saves too
    little.
    """
    B, S = part.input_BS.shape
    P = S - part.length + 1
    real_BS = part.attention_BS
    prompts = torch.cat([part.input_BS[:, :P], real_BS[:, :P].long()], dim=1)
    group_B = torch.unique(prompts, dim=0, return_inverse=True)[1]
    count_B = real_BS[:, P:].sum(dim=1)  # fed response tokens: all but the last
    # Response tokens of the group that stand before this row's.
    behind_B = (group_B[:, None] == group_B).tril(-1).long() @ count_B
    G = int(group_B.max()) + 1
    C = P + int((behind_B + count_B).max())
    if C > LONGEST or G * C > WORTH * B * S:
        return None
    column_S = torch.arange(S)
    in_response_S = column_S >= P
    place_BS = (group_B * C)[:, None] + column_S + behind_B[:, None] * in_response_S
    filled_BS = real_BS | ~in_response_S

    def shared(values_BS: Tensor, nothing: int) -> Tensor:
        values_N = torch.full((G * C,), nothing)
        values_N[place_BS[filled_BS]] = values_BS[filled_BS]
        return values_N.view(G, C)

    # The row of a response token; -1 a prompt's; -2 nobody's.
    owner_BS = torch.where(in_response_S, torch.arange(B)[:, None], -1)
    owner_GC = shared(owner_BS.masked_fill(~real_BS, -2), -2)
    query_GC1 = owner_GC[:, :, None]
    key_G1C = owner_GC[:, None, :]
    causal_CC = torch.ones(C, C, dtype=torch.bool).tril()
    seen_GCC = causal_CC & ((key_G1C == -1) | (key_G1C == query_GC1)) & (key_G1C != -2)
    # Let padding attend to itself, else softmax gives NaN.
    seen_GCC |= torch.eye(C, dtype=torch.bool)
    inputs = {
        "input_ids": shared(part.input_BS, 0),
        "attention_mask": seen_GCC[:, None],
        "position_ids": shared(part.inputs["position_ids"], 0),
    }
    return SharedPrompts(inputs, place_BS.clamp(max=G * C - 1))


@dataclass(slots=True)
class Forward:
    """One forward pass; only `logp_BT` (0 off the loss mask) and `entropy_BT` may carry a gradient.
    `seconds_replay` is known at its end."""

    logp_BT: Tensor
    entropy_BT: Tensor | None
    logit_gradient_BT: Tensor | None = None
    natural_BSLK: Tensor | None = None
    router_entropy_BSL: Tensor | None = None
    seconds_replay: float = 0.0

    @property
    def metrics(self) -> Metrics:
        """What a `Recorder` reads of the pass itself."""
        gradient_BT = self.logit_gradient_BT
        return {} if gradient_BT is None else {"logit_gradient": gradient_BT}

    def without_graph(self) -> "Forward":
        """This result without what the backward pass needs, to be kept."""
        entropy_BT = None if self.entropy_BT is None else self.entropy_BT.detach()
        return replace(self, logp_BT=self.logp_BT.detach(), entropy_BT=entropy_BT)


class Policy:
    """A causal language model whose log-probs are those of logits / temperature."""

    def __init__(
        self,
        model: Any,
        *,
        temperature: float,
        dtype: Dtype,
        microbatch_tokens: int,
        float32_head: bool = False,
    ) -> None:
        if float32_head:
            check_float32_head(model, "update.float32_head")
        self.model = model
        self.routers = Routers.of(model)
        self.temperature = temperature
        self.microbatch_tokens = microbatch_tokens
        self._dtype = dtype
        self._float32_head = float32_head and dtype != "float32"
        self._shares = is_large(model.parameters()) and plain_head(model) and can_share(model)

    @contextmanager
    def forward(
        self,
        part: Microbatch,
        *,
        replay_BSLK: Tensor | None = None,
        entropy: bool = False,
        logit_gradient: bool = False,
    ) -> Iterator[Forward]:
        """A context in which the routes are replayed. The backward pass belongs inside: gradient
        checkpointing computes the forward pass again there."""
        shared = share_prompts(part) if self._shares else None
        replay = (replay_BSLK, part.attention_BS)
        if shared is not None and replay_BSLK is not None:
            shared_replay = shared.gather_routes(replay_BSLK, part.attention_BS)
            if shared_replay is None:
                shared = None
            replay = shared_replay or replay
        inputs = part.inputs if shared is None else shared.inputs
        with self._tap(inputs, *replay) as routes:
            with computing_in(self._dtype, self.model.device.type):
                forward = Forward(
                    *token_logprobs(
                        self.model,
                        inputs,
                        part.target_BT,
                        part.mask_BT,
                        temperature=self.temperature,
                        entropy=entropy,
                        logit_gradient=logit_gradient,
                        place_BT=None if shared is None else shared.place_BS[:, -part.length :],
                        float32_head=self._float32_head,
                    )
                )
            if routes is not None:
                forward.natural_BSLK = routes.natural_BSLK
                forward.router_entropy_BSL = routes.entropy_BSL
                if shared is not None:
                    forward.natural_BSLK = shared.spread(routes.natural_BSLK)
                    forward.router_entropy_BSL = shared.spread(routes.entropy_BSL)
            yield forward
            if routes is not None:
                forward.seconds_replay = routes.seconds_replay

    def _tap(self, inputs: dict[str, Tensor], replay_BSLK: Tensor | None, mask_BS: Tensor) -> Any:
        if self.routers is None:
            return nullcontext()
        return self.routers.tap(
            *inputs["input_ids"].shape, replay_BSLK=replay_BSLK, replay_mask_BS=mask_BS
        )

    @torch.no_grad()
    def fill_old_policy(self, experience: Experience, rows: Tensor) -> float:
        """Fill in the old policy's log-probs, entropy and routes of `rows`; returns the seconds
        replay took.
        """
        seconds = 0.0
        for part in microbatches(experience, rows, self.microbatch_tokens):
            routes_BSLK = microbatch_slice(experience.rollout_routes_NSLK, part)
            with self.forward(part, replay_BSLK=routes_BSLK, entropy=True) as forward:
                keep_old_policy(experience, part, forward)
            seconds += forward.seconds_replay
        return seconds

    @torch.no_grad()
    def reference(self, experience: Experience, rows: Tensor) -> Tensor:
        """[N, T] log-probs of the starting policy at `rows`, 0 elsewhere: of this model, without
        adapters if it has any.
        """
        out_NT = torch.zeros_like(experience.old_logp_NT)
        with adapters_off(self.model):
            for part in microbatches(experience, rows, self.microbatch_tokens):
                with self.forward(part) as forward:
                    out_NT[part.block] = forward.logp_BT
        return out_NT


def keep_old_policy(experience: Experience, part: Microbatch, forward: Forward) -> None:
    """Keep a forward pass of the old policy: its log-probs, entropy and the routers' own
    choices.
    """
    experience.old_logp_NT[part.block] = forward.logp_BT.detach()
    experience.old_known_N[part.rows] = True
    if forward.entropy_BT is not None:
        experience.entropy_NT[part.block] = forward.entropy_BT.detach()
    if forward.natural_BSLK is not None:
        experience.keep_routes(part.rows, forward.natural_BSLK, part.first_column)
