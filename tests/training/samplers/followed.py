"""A model whose weights move, requests to its samplers, and how far off they are."""

from typing import Any

import torch

from gspo_lab.training.models.builtin_models import byte_tokenizer
from gspo_lab.training.samplers import Request, Rollout, noise_key

TOKENIZER = byte_tokenizer()
SMALL = {"layers": 2, "width": 64}
TEXTS = ["1+1=", "a much longer prompt than the others =", "x", "12+34=", "7"]


def move(model: Any, factor: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(factor)


def requests(texts: list[str] = TEXTS, samples: int = 4) -> list[Request]:
    return [
        Request(text, tuple(TOKENIZER.encode(text)), sample, noise_key(text, sample))
        for text in texts
        for sample in range(samples)
    ]


def gaps(model: Any, rollouts: list[Rollout], temperature: float) -> torch.Tensor:
    """|log p of the sampler - log p of the model| of every token drawn."""
    out = []
    for rollout in rollouts:
        ids = torch.tensor([[*rollout.request.prompt_ids, *rollout.response_ids]])
        with torch.no_grad():
            logp_SV = (model(ids).logits[0].float() / temperature).log_softmax(-1)
        start = len(rollout.request.prompt_ids) - 1
        native = torch.tensor(rollout.logprobs)
        out.append(
            (
                logp_SV[start:-1].gather(1, torch.tensor(rollout.response_ids)[:, None])[:, 0]
                - native
            ).abs()
        )
    return torch.cat(out)


def make_room() -> None:
    """A worker has one engine; in this process the next one wants its place."""
    from vllm.distributed import cleanup_dist_env_and_memory

    cleanup_dist_env_and_memory()
