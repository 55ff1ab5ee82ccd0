"""A rollout batch as padded tensors: prompts padded on the left, responses on the right, row by
row.

Shapes: N responses of the batch, B some of its rows, P prompt positions (in PG prompts), G
responses to a prompt, T response tokens, S = P + T - 1 input positions (the last response token is
never fed), L MoE layers, K experts per token (in NK turns of the response that has most)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import torch
from torch import Tensor

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonObject
from gspo_lab.tasks.base import Grade
from gspo_lab.training.objectives import turn_advantages
from gspo_lab.training.objectives.ratios import sequence_mean
from gspo_lab.training.objectives.settings import Truncated
from gspo_lab.training.samplers.base import Rollout, everywhere


@dataclass(slots=True)
class Experience:
    """A graded rollout batch. Log-probs and advantages are 0 off the loss mask.

    `attention_NT`: all tokens of a response, which are fed. `mask_NT`, the loss mask: those that
    the policy chose, not a tool's. `evaluated_N`: False where A = 0 spares all passes of the
    policy. `old_known_N`: the trainer has evaluated the old policy. `counted_N`: False for
    truncated responses outside the loss's denominator. `old_logp_NT`, `entropy_NT` and
    `natural_NSLK` (the routers' own choice) are filled in as the old policy is evaluated;
    `rollout_routes_NSLK` only where the sampler's routes are replayed; `value_NT` and `return_NT`
    by a critic.
    """

    prompt_NP: Tensor
    response_NT: Tensor
    prompt_mask_NP: Tensor
    attention_NT: Tensor
    mask_NT: Tensor
    adv_NT: Tensor
    evaluated_N: Tensor
    counted_N: Tensor
    old_known_N: Tensor
    sampler_logp_NT: Tensor
    old_logp_NT: Tensor
    entropy_NT: Tensor
    ref_logp_NT: Tensor | None = None
    rollout_routes_NSLK: Tensor | None = None
    natural_NSLK: Tensor | None = None
    value_NT: Tensor | None = None
    return_NT: Tensor | None = None

    def credit(self, adv: Tensor) -> None:
        """Give the loss mask's tokens their advantages: [N, T], or [N, 1] where a response's are
        all the same.
        """
        self.adv_NT = adv * self.mask_NT

    def leave_out(self, rollouts: Sequence[Rollout], treatment: Truncated) -> None:
        """Take truncated responses out of the loss: their terms ("mask"), and their place in its
        mean ("drop").

        DAPO's overlong filtering (arXiv 2503.14476, section 3.4); TRL's
        `mask_truncated_completions` masks, and drops where its loss is a mean over tokens.
        """
        cut_N = torch.tensor(
            [rollout.truncated for rollout in rollouts],
            dtype=torch.bool,
            device=self.mask_NT.device,
        )
        if treatment != "train":
            self.adv_NT = self.adv_NT.masked_fill(cut_N[:, None], 0.0)
        if treatment == "drop":
            self.counted_N = ~cut_N

    def keep_routes(self, rows: Tensor, routes_BSLK: Tensor, start: int = 0) -> None:
        """Keep the routers' own choice on some rows, from the input position `start` on."""
        if self.natural_NSLK is None:
            self.natural_NSLK = routes_BSLK.new_zeros(
                *self.input_mask_NS.shape, *routes_BSLK.shape[2:]
            )
        self.natural_NSLK[rows, start : start + routes_BSLK.shape[1]] = routes_BSLK

    def counts(self, rows: Tensor) -> tuple[int, int]:
        """The loss's denominators over some rows: responses and tokens, at least 1 response."""
        counted_M = self.counted_N[rows]
        return max(int(counted_M.sum()), 1), int(self.mask_NT[rows][counted_M].sum())

    @property
    def adv_N(self) -> Tensor:
        """Each response's mean advantage, in the double precision in which the mean of equal
        numbers is that number.
        """
        return sequence_mean(self.adv_NT.double(), self.mask_NT)[:, 0]  # type: ignore[no-any-return]

    @property
    def mismatch_NT(self) -> Tensor:
        """d = log pi_old of the trainer - log mu of the sampler, 0 where the former is not
        known.
        """
        known_NT = self.mask_NT & self.old_known_N[:, None]
        return (self.old_logp_NT - self.sampler_logp_NT).masked_fill(~known_NT, 0.0)

    @property
    def input_mask_NS(self) -> Tensor:
        """True at the positions that are fed: a response token is fed where another one follows
        it.
        """
        return torch.cat([self.prompt_mask_NP, self.attention_NT[:, 1:]], dim=1)


@dataclass(slots=True)
class Microbatch:
    """Some rows of an experience, cut to their own longest prompt and response: what one forward
    pass sees.
    """

    rows: Tensor
    first_column: int
    """The first prompt column kept."""
    length: int
    """Response columns kept."""
    input_BS: Tensor
    attention_BS: Tensor
    target_BT: Tensor
    mask_BT: Tensor

    @property
    def block(self) -> tuple[Tensor, slice]:
        """Where its [B, T] lies in a batch's [N, T]."""
        return self.rows, slice(self.length)

    @property
    def inputs(self) -> dict[str, Tensor]:
        """What a model is fed."""
        attention_BS = self.attention_BS.long()
        return {
            "input_ids": self.input_BS,
            "attention_mask": attention_BS,
            "position_ids": (attention_BS.cumsum(dim=1) - 1).clamp(min=0),
        }


def pad_rollouts(rollouts: Sequence[Rollout], pad: int, device: torch.device) -> Experience:
    """Pad rollouts into an experience with all advantages 0."""
    prompts = [r.request.prompt_ids for r in rollouts]
    responses = [r.response_ids for r in rollouts]
    mask_NT = padded([r.full_loss_mask for r in rollouts], False).to(device)
    nothing_NT = torch.zeros(mask_NT.shape, device=device)
    everyone_N = torch.ones(len(rollouts), dtype=torch.bool, device=device)
    return Experience(
        prompt_NP=padded(prompts, pad, on_left=True).to(device),
        response_NT=padded(responses, pad).to(device),
        prompt_mask_NP=padded(list(map(everywhere, prompts)), False, on_left=True).to(device),
        attention_NT=padded(list(map(everywhere, responses)), False).to(device),
        mask_NT=mask_NT,
        adv_NT=nothing_NT,
        evaluated_N=everyone_N,
        counted_N=everyone_N,
        old_known_N=~everyone_N,
        sampler_logp_NT=padded([r.logprobs for r in rollouts], 0.0)
        .to(device)
        .masked_fill(~mask_NT, 0.0),
        old_logp_NT=nothing_NT.clone(),
        entropy_NT=nothing_NT.clone(),
    )


DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float32}


def padded(rows: Sequence[Sequence[Any]], nothing: Any, *, on_left: bool = False) -> Tensor:
    """[N, longest] of rows of unequal length, filled up with `nothing`."""
    longest = max(map(len, rows), default=0)
    filled = []
    for row in rows:
        gap = list(repeat(nothing, longest - len(row)))
        filled.append([*gap, *row] if on_left else [*row, *gap])
    return torch.tensor(filled, dtype=DTYPES[type(nothing)]).view(len(rows), longest)


def pack_routes(
    rollouts: Sequence[Rollout], experience: Experience, layers: int, top_k: int
) -> Tensor:
    """[N, S, L, K] of the sampler's routes at the input positions. LabError where a rollout has
    none, or of another shape."""
    P = experience.prompt_NP.shape[1]
    out = torch.zeros(*experience.input_mask_NS.shape, layers, top_k, dtype=torch.int16)
    for row, r in enumerate(rollouts):
        p = len(r.request.prompt_ids)
        t = len(r.response_ids)
        if r.routes is None:
            raise LabError(
                "routing_replay = 'rollout': the sampler returned no routes for"
                f" {r.request.problem}"
            )
        if r.routes.shape != (p + t - 1, layers, top_k):
            raise LabError(
                f"routing_replay = 'rollout': routes of {r.request.problem} have shape"
                f" {r.routes.shape}; its {p} + {t} tokens and the model's {layers} MoE layers with"
                f" {top_k} experts need {(p + t - 1, layers, top_k)}"
            )
        out[row, P - p : P + t - 1] = torch.from_numpy(r.routes)
    return out.to(experience.mask_NT.device)


def microbatches(
    experience: Experience, rows: Tensor, budget: int, *, every: bool = False
) -> Iterator[Microbatch]:
    """Split the evaluated ones of `rows`, or `every` one, into forward passes of at most `budget`
    positions (rows x padded length), long rows together.
    """
    rows = rows if every else rows[experience.evaluated_N[rows]]
    # As lists: a GPU would be waited for at every row.
    prompts = experience.prompt_mask_NP[rows].sum(dim=1).tolist()
    responses = experience.attention_NT[rows].sum(dim=1).tolist()
    order = sorted(range(len(prompts)), key=lambda place: -prompts[place] - responses[place])
    group: list[int] = []
    longest_prompt = longest_response = 0
    for place in order:
        prompt = max(longest_prompt, prompts[place])
        response = max(longest_response, responses[place])
        if group and (len(group) + 1) * (prompt + response - 1) > budget:
            yield microbatch(experience, rows[group], longest_prompt, longest_response)
            group = []
            prompt = prompts[place]
            response = responses[place]
        group.append(place)
        longest_prompt = prompt
        longest_response = response
    if group:
        yield microbatch(experience, rows[group], longest_prompt, longest_response)


def microbatch(experience: Experience, rows: Tensor, prompt: int, response: int) -> Microbatch:
    """Some rows with the last `prompt` columns of their prompts and the first `response` ones of
    their responses.
    """
    first_column = experience.prompt_NP.shape[1] - prompt
    target_BT = experience.response_NT[rows, :response]
    attention_BT = experience.attention_NT[rows, :response]
    return Microbatch(
        rows=rows,
        first_column=first_column,
        length=response,
        input_BS=torch.cat([experience.prompt_NP[rows, first_column:], target_BT[:, :-1]], dim=1),
        attention_BS=torch.cat(
            [experience.prompt_mask_NP[rows, first_column:], attention_BT[:, 1:]], dim=1
        ),
        target_BT=target_BT,
        mask_BT=experience.mask_NT[rows, :response],
    )


def microbatch_slice(x_NSLK: Tensor | None, part: Microbatch) -> Tensor | None:
    """The [B, S, L, K] block of a microbatch from a batch's [N, S, L, K]; None of None."""
    if x_NSLK is None:
        return None
    return x_NSLK[part.rows, part.first_column : part.first_column + part.input_BS.shape[1]]


def turn_credit(
    rollouts: Sequence[Rollout], grades: Sequence[Grade], reward_PG: Tensor, estimator: str
) -> Tensor:
    """[N, T] advantages, each turn's on its own tokens, 0 elsewhere. Without rewards of turns the
    last one earned the response's."""
    turns = [rollout.turns or [] for rollout in rollouts]
    earned = torch.full((len(rollouts), max(map(len, turns))), torch.nan, dtype=torch.float64)
    for row, (grade, reward) in enumerate(zip(grades, reward_PG.flatten().tolist(), strict=True)):
        rewards = grade.turn_rewards or [*repeat(0.0, len(turns[row]) - 1), reward]
        earned[row, : len(rewards)] = torch.tensor(rewards, dtype=torch.float64)
    adv_NK = turn_advantages(earned.view(*reward_PG.shape, -1), estimator).flatten(0, 1).tolist()
    rows = []
    for rollout, turns_K, adv_K in zip(rollouts, turns, adv_NK, strict=True):
        token_advantages = chain.from_iterable(
            repeat(adv, turn.tokens or 0) for turn, adv in zip(turns_K, adv_K, strict=False)
        )
        rows.append([next(token_advantages) if drawn else 0.0 for drawn in rollout.full_loss_mask])
    return padded(rows, 0.0)


def turn_fields(rollouts: Sequence[Rollout]) -> JsonObject:
    """The columns of a step that tell of turns; none where the task has no more than one."""
    if rollouts[0].turns is None:
        return {}
    tokens = sum(len(rollout.response_ids) for rollout in rollouts)
    replied = sum(
        rollout.loss_mask.count(False) for rollout in rollouts if rollout.loss_mask is not None
    )
    return {
        "turns_mean": sum(len(rollout.turns or ()) for rollout in rollouts) / len(rollouts),
        "reply_tokens": replied / tokens,
    }
