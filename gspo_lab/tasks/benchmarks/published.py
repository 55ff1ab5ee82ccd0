"""What all published benchmarks have in common: problems read once, when they are first asked for."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from gspo_lab.errors import LabError
from gspo_lab.tasks.base import Grade, Problem, Task
from gspo_lab.tasks.benchmarks.boxed import NoAnswer, last_box, spoken
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
    runs_programs = False
    """Whether grading runs what a model wrote, in the sandbox; such a benchmark has the option `unsafe`."""
    enough: int | None = None
    """How many problems the user's own copy must hold; None: all that were published. `build_task` sets it."""

    def __init__(self, data: str | None = None) -> None:
        self.data = data

    @classmethod
    def options_in(cls, name: str) -> Mapping[str, str]:
        """The options in a longer name of the benchmark, as in `livecodebench-v5-2408-2502`. LabError without any."""
        raise LabError(f"unknown task '{name}'; the benchmark is called {cls.name}")

    @abstractmethod
    def read(self) -> tuple[Problem, ...]:
        """All held-out problems, in the order of their file; LabError for whatever is wrong with the data."""

    def problems(self, split: str) -> Sequence[Problem]:
        """The benchmark's problems; it has none to train on."""
        if known_split(self.name, split) == "train":
            raise LabError(f"task '{self.name}' is a benchmark and has no problems to train on; train on gsm8k, say")
        return self._held_out

    def stated(self, answer: str) -> str:
        """What of an answer is graded: the last complete box behind the thinking. NoAnswer where there is none."""
        return last_box(spoken(answer))

    @abstractmethod
    def judged(self, problem: Problem, stated: str) -> Grade:
        """The grade of what an answer states."""

    def grade(self, problem: Problem, answer: str) -> Grade:
        """Of what the answer states; one that states nothing is wrong."""
        try:
            stated = self.stated(answer)
        except NoAnswer as error:
            return Grade(0.0, False, None, str(error))
        return self.judged(problem, stated)

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
