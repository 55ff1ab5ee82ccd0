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
        shape = self.inputs["input_ids"].shape
        routes_NLK = routes_BSLK.new_zeros(shape.numel(), *routes_BSLK.shape[2:])
        mask_N = torch.zeros(shape.numel(), dtype=torch.bool, device=routes_BSLK.device)
        place_M = self.place_BS[real_BS]
        routes_NLK[place_M] = routes_BSLK[real_BS]
        mask_N[place_M] = True
        if not torch.equal(routes_NLK[place_M], routes_BSLK[real_BS]):
            return None
        return routes_NLK.view(*shape, *routes_BSLK.shape[2:]), mask_N.view(shape)


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
    """The rows of a micro-batch with every prompt once; None if that saves too little."""
    B, S = part.input_BS.shape
    P = S - part.length + 1
    fed_BR = part.attention_BS[:, P:]  # fed response tokens: all but the last
    prompt_BP = part.input_BS[:, :P]
    real_BP = part.attention_BS[:, :P]
    _, group_B = torch.unique(
        torch.cat([prompt_BP, real_BP.long()], dim=1), dim=0, return_inverse=True
    )
    count_B = fed_BR.sum(dim=1)
    G = int(group_B.max()) + 1
    behind_B = torch.zeros_like(
        count_B
    )  # response tokens of the group that stand before this row's
    total_G = count_B.new_zeros(G)
    first_G = count_B.new_zeros(G)  # a row that has the group's prompt
    for row, group in enumerate(group_B.tolist()):
        behind_B[row] = total_G[group]
        total_G[group] += count_B[row]
        first_G[group] = row
    C = P + int(total_G.max())
    if C > LONGEST or G * C > WORTH * B * S:
        return None
    device = part.input_BS.device
    R = fed_BR.shape[1]
    ids_GC = part.input_BS.new_zeros(G, C)
    position_GC = torch.zeros_like(ids_GC)
    owner_GC = torch.full(
        (G, C), -1, device=device
    )  # the row of a response token; -1 a prompt's; -2 nobody's
    ids_GC[:, :P] = prompt_BP[first_G]
    position_GC[:, :P] = (real_BP[first_G].long().cumsum(dim=1) - 1).clamp(min=0)
    owner_GC[:, P:] = -2
    owner_GC[:, :P].masked_fill_(~real_BP[first_G], -2)
    row_BR = torch.arange(B, device=device)[:, None].expand(B, R)
    offset_BR = torch.arange(R, device=device).expand(B, R)
    column_BR = P + behind_B[:, None] + offset_BR
    fed_places = (group_B[row_BR[fed_BR]], column_BR[fed_BR])
    ids_GC[fed_places] = part.input_BS[:, P:][fed_BR]
    position_GC[fed_places] = (real_BP.sum(dim=1)[:, None] + offset_BR)[fed_BR]
    owner_GC[fed_places] = row_BR[fed_BR]
    causal_CC = torch.ones(C, C, dtype=torch.bool, device=device).tril()
    query_GC1 = owner_GC[:, :, None]
    key_G1C = owner_GC[:, None, :]
    seen_GCC = causal_CC & ((key_G1C == -1) | (key_G1C == query_GC1)) & (key_G1C != -2)
    # Let padding attend to itself, else softmax gives NaN.
    seen_GCC |= torch.eye(C, dtype=torch.bool, device=device)
    inputs = {"input_ids": ids_GC, "attention_mask": seen_GCC[:, None], "position_ids": position_GC}
    start_B1 = (group_B * C)[:, None]
    prompt_column_BP = torch.arange(P, device=device).expand(B, P)
    place_BS = start_B1 + torch.cat([prompt_column_BP, column_BR], dim=1)
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
        self._shares = is_large(model) and plain_head(model) and can_share(model)

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
        replay = None if replay_BSLK is None else (replay_BSLK, part.attention_BS)
        if shared is not None and replay_BSLK is not None:
            replay = shared.gather_routes(replay_BSLK, part.attention_BS)
            if replay is None:
                shared = None
                replay = (replay_BSLK, part.attention_BS)
        inputs = part.inputs if shared is None else shared.inputs
        with self._tap(inputs, replay) as routes:
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

    def _tap(self, inputs: dict[str, Tensor], replay: tuple[Tensor, Tensor] | None) -> Any:
        if self.routers is None:
            return nullcontext()
        replay_BSLK, mask_BS = (None, None) if replay is None else replay
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
            replay = experience.rollout_routes_NSLK
            routes_BSLK = None if replay is None else microbatch_slice(replay, part)
            with self.forward(part, replay_BSLK=routes_BSLK, entropy=True) as forward:
                keep_old_policy(experience, part, forward)
            seconds += forward.seconds_replay
        return seconds

    @torch.no_grad()
    def reference(self, experience: Experience) -> Tensor:
        """[N, T] log-probs of the starting policy, for the KL term: of this model, without adapters
        if it has any.
        """
        out_NT = torch.zeros_like(experience.old_logp_NT)
        rows = torch.arange(len(out_NT), device=out_NT.device)
        with adapters_off(self.model):
            for part in microbatches(experience, rows, self.microbatch_tokens):
                with self.forward(part) as forward:
                    out_NT[part.rows, : part.length] = forward.logp_BT
        return out_NT


def keep_old_policy(experience: Experience, part: Microbatch, forward: Forward) -> None:
    """Keep a forward pass of the old policy: its log-probs, entropy and the routers' own
    choices.
    """
    experience.old_logp_NT[part.rows, : part.length] = forward.logp_BT.detach()
    experience.old_known_N[part.rows] = True
    if forward.entropy_BT is not None:
        experience.entropy_NT[part.rows, : part.length] = forward.entropy_BT.detach()
    if forward.natural_BSLK is not None:
        experience.keep_routes(part.rows, forward.natural_BSLK, part.first_column)
