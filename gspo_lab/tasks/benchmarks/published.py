"""What all published benchmarks have in common: problems read once, when they are first asked for."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence

from gspo_lab.errors import LabError
from gspo_lab.tasks.base import Problem, Task
from gspo_lab.tasks.benchmarks.datasets import digest
from gspo_lab.tasks.pools import known_split


class Published(Task, ABC):
    """A benchmark whose problems come from files. `read` gives them; the rest is here.

    An answer that was cut at the token limit is wrong: what it would have gone on to say is not known.
    """

    stop: tuple[str, ...] = ()
    chat = True
    cut_is_wrong = True
    trains = False
    """Whether it has problems to train on, too."""

    @abstractmethod
    def read(self) -> tuple[Problem, ...]:
        """All held-out problems, in the order of their file; LabError for whatever is wrong with the data."""

    def problems(self, split: str) -> Sequence[Problem]:
        """The benchmark's problems; it has none to train on."""
        if known_split(self.name, split) == "train":
            raise LabError(f"task '{self.name}' is a benchmark and has no problems to train on; train on gsm8k, say")
        return self._held_out

    @property
    def data_digest(self) -> str | None:
        """sha256 of ids, prompts and references, in order."""
        return self._digest

    @functools.cached_property
    def _held_out(self) -> tuple[Problem, ...]:
        return self.read()

    @functools.cached_property
    def _digest(self) -> str:
        return digest([[one.id, one.prompt, one.reference] for one in self._held_out])
