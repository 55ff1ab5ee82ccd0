"""What a task is: problems with their references, and a grader that serves as reward and as benchmark alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Problem:
    """A question with its reference answer. `demonstration` is a right response, for supervised warm starts.

    `Problem(id="add3-train-5", prompt="123+456=", reference="579", demonstration="...579\\n")`
    """

    id: str
    prompt: str
    reference: str
    demonstration: str | None = None


@dataclass(frozen=True, slots=True)
class Grade:
    """A grader's word on one answer. `reward` is what training uses; `correct` is what a benchmark counts.

    A grader that fails says so in `error` and leaves reward and correct None: that is no wrong answer.
    """

    reward: float | None
    correct: bool | None
    extracted: str | None = None
    reason: str = ""
    error: str | None = None


class Task(Protocol):
    """A source of problems that grades answers. The same object trains and evaluates."""

    name: str
    grader: str
    """Name and version of the grading rule, stored with every grade: `"addition/1"`."""
    stop: tuple[str, ...]
    """Texts that end a response, beside the end-of-sequence token."""
    max_tokens: int
    """A token limit that fits a right answer of an embedded (byte-level) model comfortably."""

    def problems(self, split: str) -> Sequence[Problem]:
        """All problems of `"train"` or `"held-out"`, in a fixed order; the two are disjoint."""
        ...

    def grade(self, problem: Problem, answer: str) -> Grade:
        """Grade the text of a response (end-of-sequence token and stop text removed)."""
        ...
