"""The model that rollouts are drawn from: the trained one, or what it was some rollout batches ago.

    staleness 0    the trained model itself
    staleness k    a copy of it, whose weights are those of k rollout batches before, of the start until there were k

What adapters stand beside never changes and is shared by both. Benchmarks are asked of the trained weights.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from gspo_lab.samplers.base import Sampler


class Lag:
    """`model` is what a sampler is made with; `past`, part of a checkpoint, the weights that it still has to have,
    oldest first, in main memory: those that the last `staleness` rollout batches were trained from."""

    def __init__(self, trained: Any, staleness: int) -> None:
        self._trained = trained
        self._staleness = staleness
        self._past: list[dict[str, Tensor]] = []
        self.model = trained
        if staleness:
            self.model = copy.deepcopy(trained, {id(p): p for p in trained.parameters() if not p.requires_grad})

    def version(self, step: int) -> int:
        """The rollout batches that the weights have been trained on which those of step `step` are drawn from."""
        return max(0, step - self._staleness)

    def remember(self) -> None:
        """Keep the weights that a step's updates are about to change."""
        if self._staleness:
            present = {name: p.detach().to("cpu", copy=True) for name, p in _moving(self._trained).items()}
            self._past = [*self._past, present][-self._staleness :]

    def follow(self, sampler: Sampler) -> None:
        """Draw from now on from the weights that the next rollout batch is due to."""
        if self._staleness:
            self._take(self._past[0] if self._past else _moving(self._trained))
        sampler.refresh()

    @contextmanager
    def present(self, sampler: Sampler) -> Iterator[None]:
        """A context in which the sampler draws from the trained weights."""
        if not self._staleness:
            yield
            return
        self._take(_moving(self._trained))
        sampler.refresh()
        yield
        self.follow(sampler)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"past": self._past}

    def load(self, state: dict[str, Any]) -> None:
        """Put back what `state` gave; `follow` makes use of it."""
        self._past = state["past"]

    @torch.no_grad()
    def _take(self, weights: dict[str, Tensor]) -> None:
        for name, mine in _moving(self.model).items():
            mine.copy_(weights[name])


def _moving(model: Any) -> dict[str, Tensor]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
