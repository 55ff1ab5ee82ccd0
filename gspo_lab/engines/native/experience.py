"""A rollout batch as padded tensors: prompts padded on the left, responses on the right, row by row.

Shapes: N responses of the batch, B some of its rows, P prompt positions, T response tokens, S = P + T - 1 input
positions (the last response token is never fed), L MoE layers, K experts per token.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gspo_lab.errors import LabError
from gspo_lab.samplers.base import Rollout


@dataclass(slots=True)
class Experience:
    """A graded rollout batch. `mask_NT` is True at response tokens; log-probs and advantages are 0 off it.

    `evaluated_N` is False for responses that no pass of the policy covers, A = 0 giving them no gradient; `old_known_N`
    is True for those on which the trainer's old policy has been evaluated.
    `old_logp_NT`, `entropy_NT` and `natural_NSLK` (the routers' own choice) are filled in as the old policy is
    evaluated; `rollout_routes_NSLK` are the sampler's routes, only where they are replayed.
    """

    prompt_NP: Tensor
    response_NT: Tensor
    prompt_mask_NP: Tensor
    mask_NT: Tensor
    adv_NT: Tensor
    evaluated_N: Tensor
    old_known_N: Tensor
    sampler_logp_NT: Tensor
    old_logp_NT: Tensor
    entropy_NT: Tensor
    ref_logp_NT: Tensor | None = None
    rollout_routes_NSLK: Tensor | None = None
    natural_NSLK: Tensor | None = None

    @property
    def mismatch_NT(self) -> Tensor:
        """d = log pi_old of the trainer - log mu of the sampler, 0 where the former is not known."""
        known_NT = self.mask_NT & self.old_known_N[:, None]
        return (self.old_logp_NT - self.sampler_logp_NT).masked_fill(~known_NT, 0.0)

    @property
    def input_mask_NS(self) -> Tensor:
        """True at the positions that are fed: a response token is fed where another one follows it."""
        return torch.cat([self.prompt_mask_NP, self.mask_NT[:, 1:]], dim=1)


@dataclass(slots=True)
class Part:
    """Some rows of an experience, cut to their own longest prompt and response: what one forward pass sees."""

    rows: Tensor
    first: int
    """The first prompt column kept."""
    length: int
    """Response columns kept."""
    input_BS: Tensor
    attention_BS: Tensor
    target_BT: Tensor
    mask_BT: Tensor


def pack(rollouts: Sequence[Rollout], pad: int, device: torch.device) -> Experience:
    """Pad rollouts into an experience with all advantages 0."""
    P = max(len(r.request.prompt_ids) for r in rollouts)
    T = max(len(r.response_ids) for r in rollouts)
    prompts = [r.request.prompt_ids for r in rollouts]
    prompt = torch.tensor([[pad] * (P - len(ids)) + list(ids) for ids in prompts])
    prompt_mask = torch.tensor([[False] * (P - len(ids)) + [True] * len(ids) for ids in prompts])
    response = torch.tensor([r.response_ids + [pad] * (T - len(r.response_ids)) for r in rollouts])
    mask = torch.tensor([[True] * len(r.response_ids) + [False] * (T - len(r.response_ids)) for r in rollouts])
    logp = torch.tensor([r.logprobs + [0.0] * (T - len(r.logprobs)) for r in rollouts])
    return Experience(
        prompt_NP=prompt.to(device),
        response_NT=response.to(device),
        prompt_mask_NP=prompt_mask.to(device),
        mask_NT=mask.to(device),
        adv_NT=torch.zeros(mask.shape, device=device),
        evaluated_N=torch.ones(len(rollouts), dtype=torch.bool, device=device),
        old_known_N=torch.zeros(len(rollouts), dtype=torch.bool, device=device),
        sampler_logp_NT=logp.to(device),
        old_logp_NT=torch.zeros(mask.shape, device=device),
        entropy_NT=torch.zeros(mask.shape, device=device),
    )


def pack_routes(rollouts: Sequence[Rollout], experience: Experience, layers: int, top_k: int) -> Tensor:
    """[N, S, L, K] of the sampler's routes, aligned with the experience's input positions.

    Raises LabError where a rollout has no routes, or routes that do not line up with its tokens and the model's layers.
    """
    P, T = experience.prompt_NP.shape[1], experience.mask_NT.shape[1]
    out = torch.zeros(len(rollouts), P + T - 1, layers, top_k, dtype=torch.int16)
    for row, r in enumerate(rollouts):
        p, t = len(r.request.prompt_ids), len(r.response_ids)
        if r.routes is None:
            raise LabError(f"routing_replay = 'rollout': the sampler returned no routes for {r.request.problem}")
        if r.routes.shape != (p + t - 1, layers, top_k):
            raise LabError(
                f"routing_replay = 'rollout': routes of {r.request.problem} have shape {r.routes.shape}; its {p} + {t} "
                f"tokens and the model's {layers} MoE layers with {top_k} experts need {(p + t - 1, layers, top_k)}"
            )
        out[row, P - p : P + t - 1] = torch.from_numpy(r.routes)
    return out.to(experience.mask_NT.device)


def parts(experience: Experience, rows: Tensor, budget: int) -> Iterator[Part]:
    """Split the evaluated ones of `rows` into forward passes of at most `budget` positions (rows x padded length), long
    rows together.
    """
    rows = rows[experience.evaluated_N[rows]]
    prompt_B = experience.prompt_mask_NP[rows].sum(dim=1)
    response_B = experience.mask_NT[rows].sum(dim=1)
    order = torch.argsort(prompt_B + response_B, descending=True, stable=True).tolist()
    group: list[int] = []
    longest_prompt = longest_response = 0
    for place in order:
        prompt = max(longest_prompt, int(prompt_B[place]))
        response = max(longest_response, int(response_B[place]))
        if group and (len(group) + 1) * (prompt + response - 1) > budget:
            yield _part(experience, rows[group], longest_prompt, longest_response)
            group, prompt, response = [], int(prompt_B[place]), int(response_B[place])
        group.append(place)
        longest_prompt, longest_response = prompt, response
    if group:
        yield _part(experience, rows[group], longest_prompt, longest_response)


def _part(experience: Experience, rows: Tensor, prompt: int, response: int) -> Part:
    first = experience.prompt_NP.shape[1] - prompt
    target_BT = experience.response_NT[rows, :response]
    mask_BT = experience.mask_NT[rows, :response]
    return Part(
        rows=rows,
        first=first,
        length=response,
        input_BS=torch.cat([experience.prompt_NP[rows, first:], target_BT[:, :-1]], dim=1),
        attention_BS=torch.cat([experience.prompt_mask_NP[rows, first:], mask_BT[:, 1:]], dim=1),
        target_BT=target_BT,
        mask_BT=mask_BT,
    )


def of_part(x_NSLK: Tensor, part: Part) -> Tensor:
    """The [B, S, L, K] block of a part from a batch's [N, S, L, K]."""
    return x_NSLK[part.rows, part.first : part.first + part.input_BS.shape[1]]
