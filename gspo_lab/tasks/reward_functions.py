"""Reward functions of TRL's and verl's signatures as graders of this package.

    reward(completions, **columns), reward(prompts, completions, ...)   TRL: lists in, rewards out
    compute_score(data_source, solution_str, ground_truth, extra_info)  verl: a number, or a dict

A function, a partial, or an object with `__call__` does. TRL's may return a list, a tuple, an array
of numpy or a tensor.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping
from gspo_lab.tasks.base import Grade, Problem, flag

Function = Callable[..., object]
"""A reward function of a user."""

TRL = "TRL"
VERL = "verl"
LAB = "gspo-lab"

REFERENCES = ("reference", "ground_truth", "answer", "solution", "label", "target")
"""Columns of data sets that hold the right answer: a function of TRL's signature may ask for any of
them.
"""

COLUMNS = ("completions", "prompts", "id", *REFERENCES)

REWARD_OPTIONS = {"messages": TRL, "data_source": VERL}
"""Options of a task, by the signature that they belong to."""

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def definition_of(function: Any) -> Any:
    """The function or class whose source is that of a partial or of an object with `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    return function if inspect.isroutine(function) else type(function)


def signature_of(function: object) -> str | None:
    """Whose reward function this is: TRL's, verl's or the lab's own; None for anything else."""
    if inspect.isclass(function) or not callable(function):
        return None
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # of some built-in functions
        return None
    if "completions" in parameters:
        return TRL
    if {"solution_str", "ground_truth"} <= parameters.keys():
        return VERL
    required = [
        param
        for param in parameters.values()
        if param.default is param.empty and param.kind in POSITIONAL
    ]
    return LAB if len(required) == 2 else None


def as_grader(name: str, function: Function, options: JsonMapping) -> Function:
    """`function` as `grade(problem, answer)`.

    LabError for an option or a parameter that its signature lacks, and for an async function.
    """
    signature = signature_of(function)
    for option, owner in REWARD_OPTIONS.items():
        if option in options and signature != owner:
            raise LabError(
                f"task '{name}': {option} belongs to reward functions of {owner}; leave it out"
            )
    if inspect.iscoroutinefunction(definition_of(function)):
        raise LabError(f"task '{name}': the function is async; make it a plain one")
    if signature == LAB:
        return function
    if signature == TRL:
        return _trl_grader(name, function, options)
    return _verl_grader(name, function, options)


def _trl_grader(name: str, function: Function, options: JsonMapping) -> Function:
    for param in inspect.signature(function).parameters.values():
        required = param.default is param.empty and param.kind in (*POSITIONAL, param.KEYWORD_ONLY)
        if required and param.name not in COLUMNS:
            raise LabError(
                f"task '{name}': the reward function's parameter '{param.name}' is not a column"
                f" of a problem; it can be {', '.join(COLUMNS)}"
            )
    messages = flag(name, "messages", options.get("messages", False))

    def message(role: str, text: str) -> object:
        return [{"role": role, "content": text}] if messages else text

    def grade(problem: Problem, answer: str) -> object:
        columns: dict[str, object] = {key: [problem.reference] for key in REFERENCES}
        columns["id"] = [problem.id]
        columns["prompts"] = [message("user", problem.prompt)]
        columns["completions"] = [message("assistant", answer)]
        return _only_reward(_call(function, columns))

    return grade


def _call(function: Function, columns: JsonMapping) -> Any:
    """What the function returns for the columns that it has parameters for."""
    parameters = inspect.signature(function).parameters
    takes_all = any(param.kind is param.VAR_KEYWORD for param in parameters.values())
    return function(
        **{key: value for key, value in columns.items() if takes_all or key in parameters}
    )


def _only_reward(rewards: Any) -> object:
    """The reward in a sequence of one: a list, a tuple, an array or a tensor."""
    entries: list[object] = []
    if not isinstance(rewards, str | Mapping):
        with suppress(TypeError):  # of a number, and of an array without dimensions
            entries = list(rewards)
    if len(entries) == 1:
        return entries[0]
    raise TypeError(
        f"the reward function returned {rewards!r:.60} for one completion, not a list of one reward"
    )


def _verl_grader(name: str, function: Function, options: JsonMapping) -> Function:
    source = options.get("data_source", "")
    if not isinstance(source, str):
        raise LabError(f"task '{name}': data_source = {source!r} must be text")

    def grade(problem: Problem, answer: str) -> object:
        extra = {"index": problem.id, "question": problem.prompt, "answer": problem.reference}
        columns = {
            "data_source": source,
            "solution_str": answer,
            "ground_truth": problem.reference,
            "extra_info": extra,
        }
        score = _call(function, columns)
        if not isinstance(score, Mapping):
            return score
        correct = score.get("acc")
        return Grade(score["score"], None if correct is None else bool(correct))

    return grade
