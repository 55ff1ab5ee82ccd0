"""A user's own task: a JSON-lines file of problems and a Python function that grades.

    # my_file.py                                        # the study
    def grade(problem, answer):                         [task]
        return float(problem.reference in answer)       name = "my_file.py:grade"
                                                        problems = "problems.jsonl"

A line is `{"prompt": ..., "reference": ...}`, with `"id"` and `"demonstration"` where there are
any. The grader returns a number (the reward; 1 or more counts as correct), a bool or a `Grade`; its
failure is an error of that one grade. With `reply = "function"` the task has several turns:
`reply(problem, turns)` of the same file returns the text after each turn but the last. Reward
functions of TRL and verl do as well (reward_functions.py).
"""

import functools
import hashlib
import inspect
import json
import math
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import beside
from gspo_lab.common.plain_data import JsonMapping, Strings
from gspo_lab.common.registry import look_up
from gspo_lab.common.user_code import source_digest
from gspo_lab.tasks.base import (
    Grade,
    Problem,
    Problems,
    ReplyError,
    Task,
    Turn,
    integer_option,
    known_names,
    reward_names,
)
from gspo_lab.tasks.pools import hash_fraction, known_split
from gspo_lab.tasks.reward_functions import as_grader, definition_of
from gspo_lab.tasks.time_limit import TooLong, call_within

OPTIONS = (
    "problems",
    "held_out",
    "stop",
    "max_tokens",
    "seconds",
    "reply",
    "max_turns",
    "messages",
    "data_source",
    "rewards",
)
KEYS = ("id", "prompt", "reference", "demonstration")
DEFAULT_MAX_TOKENS = 256
DEFAULT_SECONDS = 300
"""After which an answer counts as not graded: a grader may ask a judge over the network, and must
not hang a run.
"""
DEFAULT_MAX_TURNS = 8

T = TypeVar("T")
Grader = Callable[..., object]
Replier = Callable[[Problem, Sequence[Turn]], object]


@dataclass(slots=True)
class Custom(Task):
    """Problems from files, graded by a function.

    `grader` holds the start of its source's sha256.
    """

    name: str
    grader: str
    stop: Strings
    max_tokens: int
    function: Grader
    source: str
    train: tuple[Problem, ...]
    held_out: tuple[Problem, ...]
    seconds: int = DEFAULT_SECONDS
    replier: Replier | None = None
    max_turns: int = 1
    reward_names: Strings = ()

    def problems(self, split: str) -> Problems:
        """All problems of the split, in the order of their file."""
        return self.train if known_split(self.name, split) == "train" else self.held_out

    def grade(self, problem: Problem, answer: str, **arguments: Any) -> Grade:
        """What the user's function says, as a Grade; its failure is the grade's `error`."""
        try:
            return call_within(
                self.seconds, lambda: _grade_of(self.function(problem, answer, **arguments))
            )
        except TooLong:
            return Grade(None, None, error=f"it has not graded the answer after {self.seconds} s")
        except (Exception, SystemExit) as error:
            return Grade(None, None, error=self._error_text(error))

    def grade_turns(self, problem: Problem, turns: Sequence[Turn]) -> Grade:
        """The grade of the last turn's text.

        A function with a parameter `turns` gets all turns.
        """
        arguments = (
            {"turns": tuple(turns)}
            if "turns" in inspect.signature(self.function).parameters
            else {}
        )
        return self.grade(problem, turns[-1].text, **arguments)

    def reply(self, problem: Problem, turns: Sequence[Turn]) -> str | None:
        """What the user's other function returns."""
        if self.replier is None:
            return None
        try:
            text = call_within(self.seconds, functools.partial(self.replier, problem, tuple(turns)))
        except TooLong:
            raise ReplyError(f"there is no reply after {self.seconds} s") from None
        except (Exception, SystemExit) as error:
            raise ReplyError(f"no reply: {self._error_text(error)}") from error
        if text is None:
            return None
        if not isinstance(text, str):
            raise ReplyError(f"the reply is {text!r:.60}, neither text nor None")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ReplyError(
                f"the reply {text[:40]!a} is not Unicode text (a lone surrogate?)"
            ) from None
        return text

    def _error_text(self, error: BaseException) -> str:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == self.source]
        where = f" ({Path(self.source).name}:{lines[-1]})" if lines else ""
        # Not str(error), which is the user's own code once more and may fail too.
        return " ".join("".join(traceback.format_exception_only(error)).split())[:400] + where


def read_custom(name: str, function: Grader, options: JsonMapping, base: Path) -> Custom:
    """The task of the grader `function`, its files read; LabError with file and line for what is
    wrong in them.
    """
    known_names(name, options, OPTIONS)
    user_function = function
    definition = definition_of(function)
    function = as_grader(name, function, options)
    replier = _replier(name, options, base)
    if not isinstance(options.get("problems"), str):
        raise LabError(
            f"task '{name}': problems must name a file of JSON lines: problems = \"problems.jsonl\""
        )
    train, held_out = _splits(
        name, beside(base, options["problems"]), options.get("held_out", 0.2), base
    )
    source = inspect.getsourcefile(definition)
    digest = source_digest(definition)
    user_file = beside(base, name.rpartition(":")[0])
    if digest is not None and definition is not inspect.unwrap(user_function):
        # The values of a partial or an object stand in the user's file.
        digest = hashlib.sha256(digest.encode() + _content(user_file)).hexdigest()
    if source is None or digest is None:
        raise LabError(
            f"task '{name}': the source of the grader cannot be read, so its version cannot be"
            " recorded"
        )
    return Custom(
        name=name,
        grader=f"{name.rpartition(':')[2]}@{digest[:8]}",
        stop=_stop(name, options.get("stop", ())),
        max_tokens=integer_option(
            name,
            "max_tokens",
            options.get("max_tokens", _longest([*train, *held_out])),
            1,
            1_000_000,
        ),
        function=function,
        source=source,
        train=train,
        held_out=held_out,
        seconds=integer_option(name, "seconds", options.get("seconds", DEFAULT_SECONDS), 1, 86_400),
        replier=replier,
        max_turns=(
            1
            if replier is None
            else integer_option(
                name, "max_turns", options.get("max_turns", DEFAULT_MAX_TURNS), 2, 1000
            )
        ),
        reward_names=reward_names(name, options.get("rewards", [])),
    )


def _splits(
    name: str, path: Path, held_out: object, base: Path
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    """The train and the held-out problems, none of them in both. LabError with file and line.

    `held_out`: a file of problems, or the share of those in `path`.
    """
    train = _read(path)
    if isinstance(held_out, str):
        held_out_path = beside(base, held_out)
        tested = _read(held_out_path)
    elif isinstance(held_out, float) and 0 < held_out < 1:
        held_out_path = path
        tested = {
            line: problem for line, problem in train.items() if hash_fraction(problem.id) < held_out
        }
        train = {line: problem for line, problem in train.items() if line not in tested}
    else:
        raise LabError(
            f"task '{name}': held_out = {held_out!r} must be a share between 0 and 1, or a file's"
            " name"
        )
    for split, problems in (("train", train), ("held-out", tested)):
        if not problems:
            raise LabError(
                f"{path}: no {split} problems with held_out = {held_out!r}; add problems or change"
                " held_out"
            )
    for part in ("id", "prompt"):
        trained = {getattr(problem, part): line for line, problem in train.items()}
        for line, problem in tested.items():
            same = trained.get(getattr(problem, part))
            if same is not None:
                raise LabError(
                    f"{held_out_path}:{line}: this held-out problem has the {part} of the train"
                    f" problem {path}:{same}; remove one of the two lines"
                )
    return tuple(train.values()), tuple(tested.values())


def _content(path: Path) -> bytes:
    """The bytes of a file; none where the name is a module's."""
    return path.read_bytes() if path.is_file() else b""


def _replier(name: str, options: JsonMapping, base: Path) -> Replier | None:
    """The function that replies; None for a task of one turn."""
    called = options.get("reply")
    if called is None:
        if "max_turns" in options:
            raise LabError(
                f"task '{name}': max_turns needs a function that replies: reply = \"function\""
            )
        return None
    if not isinstance(called, str):
        raise LabError(
            f"task '{name}': reply = {called!r} must name a function of the grader's file"
        )
    replier: Replier = look_up("task", f"{name.rpartition(':')[0]}:{called}", {}, base)
    if not inspect.isfunction(replier):
        raise LabError(
            f"task '{name}': reply = '{called}' is {type(replier).__name__}, not a function"
        )
    return replier


def _grade_of(value: object) -> Grade:
    """Converts the grader's return value to a Grade.

    Raises TypeError or ValueError where it is neither a finite number nor a Grade of one.
    """
    grade = value if isinstance(value, Grade) else Grade(_reward(value), None)
    if grade.error is not None:
        return replace(grade, reward=None, correct=None)
    reward = _reward(grade.reward)
    correct = reward >= 1 if grade.correct is None else bool(grade.correct)
    extracted = None if grade.extracted is None else str(grade.extracted)
    rewards = (
        None
        if grade.rewards is None
        else {str(name): _reward(value) for name, value in grade.rewards.items()}
    )
    return replace(
        grade,
        reward=reward,
        correct=correct,
        extracted=extracted,
        reason=str(grade.reason),
        rewards=rewards,
    )


def _reward(value: Any) -> float:
    """A number of Python, numpy or torch as a float."""
    if hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, Real):  # bool is one
        hint = "; is a return missing?" if value is None else ""
        raise TypeError(f"the grader returned {value!r:.60}, not a number{hint}")
    reward = float(value)
    if not math.isfinite(reward):
        raise ValueError(f"the grader returned {reward}, not a finite number")
    return reward


def _read(path: Path) -> dict[int, Problem]:
    """The problems of a JSON-lines file by line number (from 1); empty lines are skipped."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise LabError(f"no file {path}; a path is taken from the study's folder") from None
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"{path}: cannot be read as UTF-8 text: {error}") from error
    problems: dict[int, Problem] = {}
    lines: dict[str, int] = {}
    # splitlines() would also split inside JSON strings
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        problem = _problem(f"{path}:{number}", line)
        same = f"id '{problem.id}'"
        key = problem.id
        remedy = 'give each line its own "id"'
        if problem.id == _prompt_id(problem.prompt):
            same = "prompt, blanks aside,"
            key = " ".join(problem.prompt.split())
            remedy = f"remove one of them, or {remedy}"
        if key in lines:
            raise LabError(
                f"{path}:{number}: the {same} is also that of line {lines[key]}; {remedy}"
            )
        lines[key] = number
        problems[number] = problem
    if not problems:
        raise LabError(f"{path}: no problems; write one JSON object per line")
    return problems


def _problem(where: str, line: str) -> Problem:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LabError(f"{where}: not JSON: {error}") from error
    if not isinstance(data, dict):
        raise LabError(
            f'{where}: must be an object, {{"prompt": ..., "reference": ...}}, not'
            f" {type(data).__name__}"
        )
    for key in data:
        if key not in KEYS:
            raise LabError(f"{where}: unknown key '{key}'; known: {', '.join(KEYS)}")
    prompt = data.get("prompt")
    reference = data.get("reference")
    if not isinstance(prompt, str) or not prompt:
        raise LabError(f'{where}: "prompt" is missing or no text')
    if isinstance(reference, bool) or not isinstance(reference, str | int | float):
        raise LabError(
            f'{where}: "reference" is missing or neither text nor a number; "" if the grader needs'
            " none"
        )
    demonstration = data.get("demonstration")
    turns = demonstration if isinstance(demonstration, list) else None
    if not isinstance(demonstration, str | list | None) or not all(
        isinstance(part, str) for part in turns or ()
    ):
        raise LabError(
            f'{where}: "demonstration" must be text, or a list of texts: what is said and replied'
            " by turns"
        )
    try:
        "".join((prompt, str(reference), *(demonstration or ""), str(data.get("id")))).encode()
    except UnicodeEncodeError as error:
        raise LabError(
            f"{where}: half a surrogate pair (\\ud800 to \\udfff alone) is not text: {error}"
        ) from error
    name = data.get("id", _prompt_id(prompt))
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        raise LabError(f'{where}: "id" must be text or a whole number')
    demonstrated = (
        {"demonstration": demonstration} if turns is None else {"demonstrated_turns": tuple(turns)}
    )
    return Problem(str(name), prompt, str(reference), **demonstrated)


def _prompt_id(prompt: str) -> str:
    """The id of a problem that names none."""
    return hashlib.sha256(prompt.encode()).hexdigest()[:12]


def _stop(name: str, value: object) -> Strings:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(
        isinstance(text, str) and text for text in texts
    ):
        raise LabError(
            f"task '{name}': stop = {value!r} must be a text or a list of texts, none empty"
        )
    return tuple(texts)


def _longest(problems: Any) -> int:
    """A token limit that fits the demonstrations, were every byte a token, and a quarter more."""
    demonstrations = [
        problem.demonstration or "".join(problem.demonstrated_turns or ()) for problem in problems
    ]
    sizes = [len(text.encode()) for text in demonstrations if text]
    return max(sizes) * 5 // 4 + 8 if sizes else DEFAULT_MAX_TOKENS
