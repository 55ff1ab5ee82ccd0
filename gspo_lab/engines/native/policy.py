"""The policy being trained: log-probs of responses, and what its routers chose. Shapes as in experience.py."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gspo_lab.engines.native.experience import Experience, Microbatch, microbatches, of_microbatch
from gspo_lab.engines.native.head import plain_head, token_logprobs
from gspo_lab.engines.native.shared_prompts import can_share, share_prompts
from gspo_lab.engines.native.trained import heavy
from gspo_lab.keys import Dtype
from gspo_lab.models.lora import adapters_off
from gspo_lab.models.precision import computing_in
from gspo_lab.models.routing import Routers


@dataclass(slots=True)
class Forward:
    """One forward pass. `logp_BT` is 0 off the loss mask and carries the gradient; the rest is detached.

    `seconds_replay` is known when the pass and its backward pass are over.
    """

    logp_BT: Tensor
    entropy_BT: Tensor | None
    natural_BSLK: Tensor | None = None
    router_entropy_BSL: Tensor | None = None
    seconds_replay: float = 0.0

    def without_graph(self) -> "Forward":
        """The same without what the backward pass needs, to be kept."""
        return replace(self, logp_BT=self.logp_BT.detach())


class Policy:
    """A causal language model whose log-probs are those of logits / temperature."""

    def __init__(self, model: Any, *, temperature: float, dtype: Dtype, microbatch_tokens: int) -> None:
        self.model = model
        self.routers = Routers.of(model)
        self.temperature = temperature
        self.microbatch_tokens = microbatch_tokens
        self._dtype = dtype
        self._shares = self.routers is None and heavy(model) and plain_head(model) and can_share(model)

    @contextmanager
    def forward(
        self, part: Microbatch, *, replay_BSLK: Tensor | None = None, entropy: bool = False
    ) -> Iterator[Forward]:
        """A context in which the routes are replayed: the forward pass is done, the backward pass belongs inside.

        Gradient checkpointing computes the forward pass again inside the backward pass: it must meet the same routes.
        """
        shared = share_prompts(part) if self._shares else None
        with self._tap(part, replay_BSLK) as routes:
            with computing_in(self._dtype, self.model.device.type):
                forward = Forward(
                    *token_logprobs(
                        self.model,
                        part.inputs if shared is None else shared.inputs,
                        part.target_BT,
                        part.mask_BT,
                        temperature=self.temperature,
                        entropy=entropy,
                        place_BT=None if shared is None else shared.place_BT,
                    )
                )
            if routes is not None:
                forward.natural_BSLK, forward.router_entropy_BSL = routes.natural_BSLK, routes.entropy_BSL
            yield forward
            if routes is not None:
                forward.seconds_replay = routes.seconds_replay

    def _tap(self, part: Microbatch, replay_BSLK: Tensor | None) -> Any:
        if self.routers is None:
            return nullcontext()
        mask_BS = None if replay_BSLK is None else part.attention_BS
        return self.routers.tap(*part.input_BS.shape, replay_BSLK=replay_BSLK, replay_mask_BS=mask_BS)

    @torch.no_grad()
    def remember(self, experience: Experience, rows: Tensor) -> float:
        """Fill in the old policy's log-probs, entropy and routes of `rows`; returns the seconds replay took."""
        seconds = 0.0
        for part in microbatches(experience, rows, self.microbatch_tokens):
            replay = experience.rollout_routes_NSLK
            routes_BSLK = None if replay is None else of_microbatch(replay, part)
            with self.forward(part, replay_BSLK=routes_BSLK, entropy=True) as forward:
                store(experience, part, forward)
            seconds += forward.seconds_replay
        return seconds

    @torch.no_grad()
    def reference(self, experience: Experience) -> Tensor:
        """[N, T] log-probs of the starting policy, for the KL term: of this model, without adapters if it has any."""
        out_NT = torch.zeros_like(experience.old_logp_NT)
        rows = torch.arange(len(out_NT), device=out_NT.device)
        with adapters_off(self.model):
            for part in microbatches(experience, rows, self.microbatch_tokens):
                with self.forward(part) as forward:
                    out_NT[part.rows, : part.length] = forward.logp_BT
        return out_NT


def store(experience: Experience, part: Microbatch, forward: Forward) -> None:
    """Keep a forward pass of the old policy: its log-probs, entropy and the routers' own choices."""
    experience.old_logp_NT[part.rows, : part.length] = forward.logp_BT.detach()
    experience.old_known_N[part.rows] = True
    if forward.entropy_BT is not None:
        experience.entropy_NT[part.rows, : part.length] = forward.entropy_BT
    if forward.natural_BSLK is None:
        return
    if experience.natural_NSLK is None:
        shape = (*experience.input_mask_NS.shape, *forward.natural_BSLK.shape[2:])
        experience.natural_NSLK = forward.natural_BSLK.new_zeros(shape)
    experience.natural_NSLK[part.rows, part.first : part.first + part.input_BS.shape[1]] = forward.natural_BSLK
