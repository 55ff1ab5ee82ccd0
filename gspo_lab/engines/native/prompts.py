"""The stream of prompts: which problems each step asks, decided by the seed alone."""

import hashlib
import random
from collections.abc import Sequence

from gspo_lab.samplers.base import noise_key
from gspo_lab.tasks.base import Problem


class PromptStream:
    """All training problems in a random order, again in another order when they are used up.

    The order depends on the seed, not on the arm: every arm of a seed asks the same problems at the same step.
    """

    def __init__(self, problems: Sequence[Problem], seed: int, per_step: int) -> None:
        self._problems = problems
        self._seed = seed
        self._per_step = per_step
        self._epoch = -1
        self._order: list[int] = []

    def step(self, step: int) -> list[Problem]:
        """The problems of one step; the same list whenever it is asked for."""
        first = step * self._per_step
        return [self._problems[self._index(place)] for place in range(first, first + self._per_step)]

    def _index(self, place: int) -> int:
        epoch, offset = divmod(place, len(self._problems))
        if epoch != self._epoch:
            self._order = list(range(len(self._problems)))
            random.Random(noise_key(self._seed, "order", epoch)).shuffle(self._order)
            self._epoch = epoch
        return self._order[offset]


def rolled(digest: str, problems: Sequence[Problem]) -> str:
    """The rolling digest after asking `problems`: sha256 of the digest so far and their ids."""
    return hashlib.sha256("\x1f".join([digest, *(problem.id for problem in problems)]).encode()).hexdigest()
