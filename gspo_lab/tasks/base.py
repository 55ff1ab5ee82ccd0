"""The interface of tasks: problems with references, and a grader that gives rewards and benchmark
scores.
"""

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping, OptionalFloat, OptionalInt, Strings
from gspo_lab.common.registry import unlisted

T = TypeVar("T")

LARGEST_REWARD = (2 - 2**-23) * 2.0**127
"""The largest float32: training uses float32 rewards."""

ROUNDING = 1e-6
"""Tolerance between the sum of turns' rewards and the response's, relative to the largest of them.
"""


THINKING_MARKS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("◁think▷", "◁/think▷"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel|>analysis", "<|channel|>final"),
)
"""What models write around their thinking, which holds no answer.

Some tokenizers have these, or a part of them, as special tokens: a response's text keeps them all
the same.
"""


@dataclass(frozen=True, slots=True)
class Problem:
    """A question with its reference answer. `demonstration`: a correct response, for warm starts.

    `Problem(id="add3-train-5", prompt="123+456=", reference="579", demonstration="...579\\n")`

    A response of several turns is demonstrated by `demonstrated_turns` instead: what the model
    writes and what the environment replies, by turns and as they are to stand: `("27\\n",
    ">28-42:", "35\\n")`.
    """

    id: str
    prompt: str
    reference: str
    demonstration: str | None = None
    demonstrated_turns: Strings | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn: the model's text without stop text, and the reply; None: the response ends here.

    `error`: how the environment failed, if it did. `tokens`: the number that the model wrote, with
    the end token.
    """

    text: str
    reply: str | None = None
    error: str | None = None
    tokens: OptionalInt = None


class ReplyError(Exception):
    """Failure of an environment. The response ends, and its grade is an error."""


Problems = Sequence[Problem]


@dataclass(frozen=True, slots=True)
class Grade:
    """The grade of one answer: training uses `reward`, benchmarks count `correct`.

    A grader that fails sets `error` and leaves both None: the answer is ungraded and does not count
    as incorrect. `isolation`: how a program was isolated. `turn_rewards` sum up to the reward;
    None: the last turn earned it. `rewards`: the rewards that the task names.
    """

    reward: OptionalFloat
    correct: bool | None
    extracted: str | None = None
    reason: str = ""
    error: str | None = None
    isolation: str | None = None
    turn_rewards: tuple[float, ...] | None = None
    rewards: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Defaults:
    """Default settings of a benchmark; `max_tokens` None: the task's own."""

    samples: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: OptionalInt = None


class Task(Protocol):
    """A source of problems that grades answers, for training and evaluation.

    Attributes with a value below are optional; `build_task` adds them to a task that is not a
    subclass.
    """

    name: str
    grader: str
    """Name and version of the grading rule, stored with every grade: `"addition/1"`."""
    stop: Strings
    """Texts that end a response, beside the end-of-sequence token."""
    max_tokens: int
    """A token limit with room for a correct answer of a built-in (byte-level) model."""
    prompt_version: str = "bare/1"
    """Name and version of the prompt format, stored with answers. bare: only the problem's text."""
    defaults: Defaults = Defaults()
    chat: bool = False
    """Whether prompts and replies are user messages for the model's chat template."""
    cut_is_wrong: bool = False
    """Whether a truncated answer is incorrect whatever it contains."""
    max_turns: int = 1
    """Most turns of a response. With more than one, `reply` follows each but the last."""

    reward_names: Strings = ()
    """The names of the rewards that every grade has in `rewards`; without names it has `reward`
    alone.
    """

    @property
    def data_digest(self) -> str | None:
        """sha256 of problems from files; None for generated problems."""
        return None

    def problems(self, split: str) -> Problems:
        """All problems of `"train"` or `"held-out"`, in a fixed order; the two are disjoint."""
        ...

    def fault(self, problem: Problem) -> str | None:
        """Why no answer to this problem can be graded; None: answers can be.

        Grading only answers that fail for another reason would bias the score.
        """
        return None

    def grade(self, problem: Problem, answer: str) -> Grade:
        """Grade the text of a response (end-of-sequence token and stop text removed)."""
        ...

    def reply(self, problem: Problem, turns: Sequence[Turn]) -> str | None:
        """The environment's reply to the last of `turns`; None ends the response. ReplyError if it
        fails.

        It has no state: equal turns get equal replies.
        """
        return None

    def grade_turns(self, problem: Problem, turns: Sequence[Turn]) -> Grade:
        """Grade a response of several turns; by default by the text of its last turn."""
        return self.grade(problem, turns[-1].text)


def grade_answer(
    task: Task,
    problem: Problem,
    answer: str,
    *,
    truncated: bool,
    turns: Sequence[Turn] | None = None,
) -> Grade:
    """The grade of an answer. `truncated`: at the token limit; `turns`: of a task with several.

    A reward beyond float32, or different from the sum of its turns', becomes an error of this
    grade.
    """
    if turns and turns[-1].error is not None:
        return Grade(None, None, error=turns[-1].error)
    if (fault := task.fault(problem)) is not None:
        return Grade(None, None, error=fault)
    if truncated and task.cut_is_wrong:
        return Grade(
            0.0,
            False,
            None,
            "cut at the token limit",
            rewards=dict.fromkeys(task.reward_names, 0.0) or None,
        )
    grade = task.grade(problem, answer) if turns is None else task.grade_turns(problem, turns)
    if (odd := _odd_reward(grade, task.reward_names, turns)) is None:
        return grade
    error = f"the grader returned {odd}"
    return replace(grade, reward=None, correct=None, turn_rewards=None, rewards=None, error=error)


def _odd_reward(grade: Grade, names: Sequence[str], turns: Sequence[Turn] | None) -> str | None:
    """In words, what is wrong with the rewards of a grade; None: nothing."""
    if grade.reward is None:
        return None
    if not abs(grade.reward) <= LARGEST_REWARD:
        return f"{grade.reward!r:.40}, beyond float32"
    if (turn_rewards := grade.turn_rewards) is not None:
        if len(turn_rewards) != len(turns or ()):
            return f"{len(turn_rewards)} rewards for {len(turns or ())} turns"
        total = sum(turn_rewards)
        largest = max(map(abs, (grade.reward, *turn_rewards)))
        if not math.isclose(total, grade.reward, rel_tol=0.0, abs_tol=ROUNDING * largest):
            return f"turns' rewards that add up to {total:g}, and the reward {grade.reward:g}"
    rewards = grade.rewards or {}
    if set(rewards) != set(names):
        return (
            f"rewards named {', '.join(rewards) or 'nothing'}, and the task names"
            f" {', '.join(names) or 'none'}"
        )
    large = [
        f"{name} = {value!r:.40}"
        for name, value in rewards.items()
        if not abs(value) <= LARGEST_REWARD
    ]
    return f"{large[0]}, beyond float32" if large else None


def check_options(
    name: str,
    options: JsonMapping,
    parameters: Iterable[inspect.Parameter],
    kind: str = "task",
    table: str = "task",
) -> None:
    """Raise LabError where `options` names none of the `parameters` or leaves out a required one.

    `kind` is what `name` names, and `table` where a study gives its options.
    """
    parameters = list(parameters)
    parameter_of = {
        param.name: param
        for param in parameters
        if param.kind in (param.POSITIONAL_OR_KEYWORD, param.KEYWORD_ONLY)
    }
    if not any(param.kind is param.VAR_KEYWORD for param in parameters):
        known_names(name, options, parameter_of, kind=kind)
    for option, param in parameter_of.items():
        if param.default is param.empty and option not in options:
            raise LabError(
                f"{kind} '{name}': the option '{option}' is missing; set it under [{table}]"
            )


def known_names(
    name: str, options: Iterable[str], allowed: Iterable[str], *, kind: str = "task"
) -> None:
    """Raise LabError on the first option that is not known, with the nearest known one."""
    allowed = list(allowed)
    for option in options:
        if option not in allowed:
            raise LabError(f"{kind} '{name}': unknown option {unlisted(option, allowed)}")


def integer_option(task: str, name: str, value: object, low: int, high: int) -> int:
    """`value` as a whole number from `low` to `high`, or LabError."""
    if type(value) is not int or not low <= value <= high:
        raise LabError(
            f"task '{task}': {name} = {value!r} must be a whole number from {low} to {high}"
        )
    return value


def number_option(task: str, name: str, value: object, high: float, *, zero: bool = False) -> float:
    """`value` as a number above 0 (or 0, with `zero`) up to `high`, or LabError."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (value > 0 or zero)
        or not 0 <= value <= high
    ):
        low = "from 0" if zero else "above 0"
        raise LabError(
            f"task '{task}': {name} = {value!r} must be a number {low}, at most {high:g}"
        )
    return float(value)


def choice(task: str, name: str, value: T, choices: Sequence[T]) -> T:
    """`value` where it is one of `known`, or LabError."""
    if value not in choices:
        raise LabError(
            f"task '{task}': {name} = {value!r} must be one of {', '.join(map(str, choices))}"
        )
    return value


def reward_names(task: str, names: object) -> Strings:
    """`names` as different names of rewards, or LabError."""
    listed: list[Any] = [*names] if isinstance(names, list | tuple) else [None]
    if not all(isinstance(name, str) and name for name in listed) or len({*listed}) < len(listed):
        raise LabError(f"task '{task}': rewards = {names!r} must be a list of different names")
    return tuple(listed)


def flag(task: str, name: str, value: object) -> bool:
    """`value` as true or false, or LabError."""
    if not isinstance(value, bool):
        raise LabError(f"task '{task}': {name} = {value!r} must be true or false")
    return value
