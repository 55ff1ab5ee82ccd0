"""The policy being trained: log-probs of responses, and what its routers chose. Shapes as in experience.py."""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gspo_lab.engines.native.experience import Experience, Part, of_part, parts
from gspo_lab.engines.native.head import token_logprobs
from gspo_lab.models.lora import adapters_off
from gspo_lab.models.routing import Routers


@dataclass(slots=True)
class Evaluated:
    """One forward pass over a part. `logp_BT` is 0 off the mask and carries the gradient; the rest is detached."""

    logp_BT: Tensor
    entropy_BT: Tensor | None
    natural_BSLK: Tensor | None
    router_entropy_BSL: Tensor | None
    seconds_replay: float

    def without_graph(self) -> "Evaluated":
        """The same without what the backward pass needs, to be kept."""
        return replace(self, logp_BT=self.logp_BT.detach())


class Policy:
    """A causal language model whose log-probs are those of logits / temperature."""

    def __init__(self, model: Any, *, temperature: float, dtype: str, microbatch_tokens: int) -> None:
        self.model = model
        self.routers = Routers.of(model)
        self.temperature = temperature
        self.microbatch_tokens = microbatch_tokens
        self._autocast = dtype == "bfloat16"

    def evaluate(
        self, part: Part, *, replay_BSLK: Tensor | None = None, entropy: bool = False, backward: Any = None
    ) -> Evaluated:
        """Log-probs of a part's responses; `backward(logp_BT)` runs while the routes are still replayed.

        Gradient checkpointing computes the forward pass again inside the backward pass: it must meet the same routes.
        """
        tap = nullcontext()
        if self.routers is not None:
            rows, positions = part.input_BS.shape
            tap = self.routers.tap(  # type: ignore[assignment]
                rows,
                positions,
                replay_BSLK=replay_BSLK,
                replay_mask_BS=part.attention_BS if replay_BSLK is not None else None,
            )
        device = self.model.device.type
        with tap as seen:
            with torch.autocast(device, torch.bfloat16) if self._autocast else nullcontext():
                logp_BT, entropy_BT = token_logprobs(
                    self.model,
                    {
                        "input_ids": part.input_BS,
                        "attention_mask": part.attention_BS.long(),
                        "position_ids": (part.attention_BS.long().cumsum(dim=1) - 1).clamp(min=0),
                    },
                    part.target_BT,
                    part.mask_BT,
                    temperature=self.temperature,
                    entropy=entropy,
                )
            if backward is not None:
                backward(logp_BT)
        return Evaluated(
            logp_BT=logp_BT,
            entropy_BT=entropy_BT,
            natural_BSLK=None if seen is None else seen.natural_BSLK,
            router_entropy_BSL=None if seen is None else seen.entropy_BSL,
            seconds_replay=0.0 if seen is None else seen.seconds_replay,
        )

    @torch.no_grad()
    def remember(self, experience: Experience, rows: Tensor) -> float:
        """Fill in the old policy's log-probs, entropy and routes of `rows`; returns the seconds replay took."""
        seconds = 0.0
        for part in parts(experience, rows, self.microbatch_tokens):
            replay = experience.rollout_routes_NSLK
            seen = self.evaluate(part, replay_BSLK=None if replay is None else of_part(replay, part), entropy=True)
            store(experience, part, seen)
            seconds += seen.seconds_replay
        return seconds

    @torch.no_grad()
    def reference(self, experience: Experience) -> Tensor:
        """[N, T] log-probs of the starting policy, for the KL term: of this model, without adapters if it has any."""
        out_NT = torch.zeros_like(experience.old_logp_NT)
        rows = torch.arange(len(out_NT), device=out_NT.device)
        with adapters_off(self.model):
            for part in parts(experience, rows, self.microbatch_tokens):
                out_NT[part.rows, : part.length] = self.evaluate(part).logp_BT
        return out_NT


def store(experience: Experience, part: Part, seen: Evaluated) -> None:
    """Keep a forward pass of the old policy: its log-probs, entropy and the routers' own choices."""
    experience.old_logp_NT[part.rows, : part.length] = seen.logp_BT.detach()
    experience.old_known_N[part.rows] = True
    if seen.entropy_BT is not None:
        experience.entropy_NT[part.rows, : part.length] = seen.entropy_BT
    if seen.natural_BSLK is None:
        return
    if experience.natural_NSLK is None:
        shape = (*experience.input_mask_NS.shape, *seen.natural_BSLK.shape[2:])
        experience.natural_NSLK = seen.natural_BSLK.new_zeros(shape)
    experience.natural_NSLK[part.rows, part.first : part.first + part.input_BS.shape[1]] = seen.natural_BSLK
