"""Which weights a token is drawn from: those of some rollout batches ago, or of several steps in
turn.

    staleness 0    rollouts are drawn from the trained model itself
    staleness k    from a copy with the weights of k rollout batches before, of the start until
                   there were k

Frozen weights beside adapters never change, and both share them. Benchmarks are asked of the
trained weights.

With a budget of new tokens per step, a response continues under the next step's weights:

    step:  its own prompts ─┬─> up to `budget` tokens each ─┬─> complete groups: trained on
           what waits ──────┘                               └─> the others wait for the next step

Without a budget every group is complete in the step that asks for it."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import Any

import torch
from torch import Tensor

from gspo_lab.common.plain_data import JsonObject, OptionalInt
from gspo_lab.tasks.base import Grade, Problem
from gspo_lab.training.samplers.base import Request, Rollout, Sampler, joined


class StalePolicy:
    """`model` is what a sampler is made with; `past`, part of a checkpoint, the weights that it
    still has to have, oldest first, in main memory: those that the last `staleness` rollout batches
    were trained from.
    """

    def __init__(self, trained: Any, staleness: int) -> None:
        self._trained = trained
        self._staleness = staleness
        self._past: list[dict[str, Tensor]] = []
        self.model = trained
        if staleness:
            self.model = copy.deepcopy(
                trained, {id(p): p for p in trained.parameters() if not p.requires_grad}
            )

    def version(self, step: int) -> int:
        """How many rollout batches the weights that draw step `step` have been trained on."""
        return max(0, step - self._staleness)

    def save_weights(self) -> None:
        """Keep the weights that a step's updates are about to change."""
        if self._staleness:
            present = {
                name: p.detach().to("cpu", copy=True) for name, p in _moving(self._trained).items()
            }
            self._past = [*self._past, present][-self._staleness :]

    def follow(self, sampler: Sampler) -> None:
        """Draw from now on from the weights that the next rollout batch is due to."""
        if self._staleness:
            self._take(self._past[0] if self._past else _moving(self._trained))
        sampler.refresh()

    @contextmanager
    def sample_current_weights(self, sampler: Sampler) -> Iterator[None]:
        """A context in which the sampler draws from the trained weights."""
        if not self._staleness:
            yield
            return
        self._take(_moving(self._trained))
        sampler.refresh()
        yield
        self.follow(sampler)

    def state(self) -> JsonObject:
        """What a checkpoint keeps."""
        return {"past": self._past}

    def load(self, state: JsonObject) -> None:
        """Put back what `state` gave; `follow` makes use of it."""
        self._past = state["past"]

    @torch.no_grad()
    def _take(self, weights: dict[str, Tensor]) -> None:
        for name, mine in _moving(self.model).items():
            mine.copy_(weights[name])


def _moving(model: Any) -> dict[str, Tensor]:
    return {
        name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad
    }


Asked = tuple[Problem, list[Request]]
"""A prompt and the requests for the responses to it."""


@dataclass(slots=True)
class Group:
    """One prompt's responses so far; None: no token yet. The prompt is the one at `place` of those
    that step `step` asked.
    """

    step: int
    place: int
    problem: Problem
    requests: list[Request]
    rollouts: list[Rollout | None]
    grades: list[Grade] = field(default_factory=list)
    """The responses', once the group is complete."""

    @property
    def responses(self) -> list[Rollout]:
        """The responses of a complete group."""
        return [rollout for rollout in self.rollouts if rollout is not None]


class PendingGroups:
    """Groups whose responses are not all complete. `asked_in` gives a step's prompts and requests;
    `budget` is a response's new tokens in one step, `limit` its tokens in all.
    """

    def __init__(
        self, asked_in: Callable[[int], list[Asked]], budget: OptionalInt, limit: int
    ) -> None:
        self._asked = asked_in
        self._budget = budget
        self._limit = limit
        self._groups: list[Group] = []

    def requests_of_step(
        self, step: int, replacements: Sequence[Asked] | None = None
    ) -> list[tuple[Problem, Request]]:
        """What step `step` has to draw: more of what waits, and its own prompts' responses, or
        those to `replacements`.
        """
        self._groups += [
            Group(step, place, problem, requests, [None for _ in requests])
            for place, (problem, requests) in enumerate(
                self._asked(step) if replacements is None else replacements
            )
        ]
        return [
            (group.problem, self._request(group.requests[sample], group.rollouts[sample]))
            for group, sample in self._open()
        ]

    def take(self, drawn: Sequence[Rollout], version: int) -> list[Group]:
        """Put what was drawn, by the policy `version`, to its responses; the groups that are
        complete with it.
        """
        for (group, sample), new in zip(list(self._open()), drawn, strict=True):
            new.versions = [version for _ in new.response_ids]
            earlier = group.rollouts[sample]
            if earlier is None:
                group.rollouts[sample] = replace(new, request=group.requests[sample])
            else:
                group.rollouts[sample] = joined(earlier, new)
        going = {id(group) for group, _ in self._open()}
        complete = [group for group in self._groups if id(group) not in going]
        self._groups = [group for group in self._groups if id(group) in going]
        return complete

    def responses(self) -> int:
        """How many responses are incomplete."""
        return len(list(self._open()))

    def state(self) -> JsonObject:
        """What a checkpoint keeps: what has been drawn of the groups under way; the requests are
        made again.
        """
        return {
            "groups": [
                (group.step, group.place, [_rollout_to_state(r) for r in group.rollouts])
                for group in self._groups
            ]
        }

    def load(self, state: JsonObject) -> None:
        """Put back what `state` gave."""
        self._groups = []
        for step, place, states in state["groups"]:
            problem, requests = self._asked(step)[place]
            rollouts = list(starmap(_put_back, zip(requests, states, strict=True)))
            self._groups.append(Group(step, place, problem, requests, rollouts))

    def _open(self) -> Iterator[tuple[Group, int]]:
        for group in self._groups:
            for sample, rollout in enumerate(group.rollouts):
                if rollout is None or self._goes_on(rollout):
                    yield group, sample

    def _goes_on(self, rollout: Rollout) -> bool:
        return (
            self._budget is not None
            and rollout.truncated
            and len(rollout.response_ids) < self._limit
        )

    def _request(self, request: Request, earlier: Rollout | None) -> Request:
        if self._budget is None:
            return request
        given_ids = () if earlier is None else tuple(earlier.response_ids)
        return replace(
            request, given_ids=given_ids, max_tokens=min(self._budget, self._limit - len(given_ids))
        )


KEPT = ("response_ids", "logprobs", "text", "truncated", "loss_mask", "versions")


def _rollout_to_state(rollout: Rollout | None) -> JsonObject | None:
    if rollout is None:
        return None
    routes = None if rollout.routes is None else torch.from_numpy(rollout.routes)
    return {"routes": routes, **{name: getattr(rollout, name) for name in KEPT}}


def _put_back(request: Request, state: JsonObject | None) -> Rollout | None:
    if state is None:
        return None
    routes = None if state["routes"] is None else state["routes"].numpy()
    return Rollout(request, routes=routes, **{name: state[name] for name in KEPT})
