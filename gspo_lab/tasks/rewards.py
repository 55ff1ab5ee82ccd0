"""Reward functions written for TRL and for verl, as graders: told by the names of their parameters.

grade(problem, answer)                                             the lab's own
reward(completions, **columns), reward(prompts, completions, ...)  TRL: lists in, a list of rewards out
compute_score(data_source, solution_str, ground_truth, extra_info) verl: a number, or {"score": ..., "acc": ...}
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.tasks.base import Grade, Problem
from gspo_lab.tasks.options import flag

TRL, VERL, LAB = "TRL", "verl", "gspo-lab"

REFERENCES = ("reference", "ground_truth", "answer", "solution", "label", "target")
"""Columns of data sets that hold the right answer: a function of TRL's signature may ask for any of them."""

COLUMNS = ("prompts", "id", *REFERENCES)

OPTIONS = {"messages": TRL, "data_source": VERL}
"""Options of a task, by the signature that they belong to."""

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def signature_of(function: object) -> str | None:
    """Whose reward function this is: TRL's, verl's or the lab's own; None where it is none of them."""
    if not inspect.isfunction(function):
        return None
    parameters = inspect.signature(function).parameters
    if "completions" in parameters:
        return TRL
    if {"solution_str", "ground_truth"} <= parameters.keys():
        return VERL
    required = [one for one in parameters.values() if one.default is one.empty and one.kind in POSITIONAL]
    return LAB if len(required) == 2 else None


def as_grader(name: str, function: Callable[..., object], options: Mapping[str, Any]) -> Callable[..., object]:
    """`function` as `grade(problem, answer)`. LabError for an option or a parameter that its signature lacks."""
    whose = signature_of(function)
    for option, owner in OPTIONS.items():
        if option in options and whose != owner:
            raise LabError(f"task '{name}': {option} belongs to reward functions of {owner}; leave it out")
    if whose == TRL:
        return _of_trl(name, function, flag(name, "messages", options.get("messages", False)))
    if whose == VERL:
        source = options.get("data_source", "")
        if not isinstance(source, str):
            raise LabError(f"task '{name}': data_source = {source!r} must be text")
        return _of_verl(function, source)
    return function


def _of_trl(name: str, function: Callable[..., object], messages: bool) -> Callable[..., object]:
    parameters = inspect.signature(function).parameters.values()
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters)
    known = ("completions", *COLUMNS)
    for one in parameters:
        if one.default is one.empty and one.kind in (*POSITIONAL, one.KEYWORD_ONLY) and one.name not in known:
            raise LabError(
                f"task '{name}': the reward function's parameter '{one.name}' is no column of a problem; it can be "
                f"{', '.join(known)}"
            )
    wanted = known if takes_all else [one.name for one in parameters if one.name in known]

    @functools.wraps(function)
    def grade(problem: Problem, answer: str) -> object:
        def message(role: str, text: str) -> object:
            return [{"role": role, "content": text}] if messages else text

        given: dict[str, object] = dict.fromkeys(REFERENCES, problem.reference)
        given |= {"id": problem.id, "prompts": message("user", problem.prompt)}
        given["completions"] = message("assistant", answer)
        rewards = function(**{key: [given[key]] for key in wanted})
        if not isinstance(rewards, Sequence) or isinstance(rewards, str) or len(rewards) != 1:
            raise TypeError(
                f"the reward function returned {rewards!r:.60} for one completion, not a list of one reward"
            )
        return rewards[0]

    return grade


def _of_verl(function: Callable[..., object], source: str) -> Callable[..., object]:
    parameters = inspect.signature(function).parameters
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())

    @functools.wraps(function)
    def grade(problem: Problem, answer: str) -> object:
        given = {
            "data_source": source,
            "solution_str": answer,
            "ground_truth": problem.reference,
            "extra_info": {"index": problem.id, "question": problem.prompt, "answer": problem.reference},
        }
        score = function(**{key: value for key, value in given.items() if takes_all or key in parameters})
        if not isinstance(score, Mapping):
            return score
        correct = score.get("acc")
        return Grade(score["score"], None if correct is None else bool(correct))

    return grade
