"""Options of a task, or of an engine, as a study gives them: known names and whole numbers, or one clear line."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.registry import nearest


def check_options(
    name: str,
    options: Mapping[str, Any],
    parameters: Iterable[inspect.Parameter],
    *,
    kind: str = "task",
    table: str = "task",
) -> None:
    """Raise LabError where `options` names none of the `parameters` or leaves out a required one.

    `kind` is what `name` names, and `table` where a study gives its options.
    """
    parameters = list(parameters)
    named = {one.name: one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    if not any(one.kind is one.VAR_KEYWORD for one in parameters):
        known_names(name, options, named, kind=kind)
    for option, one in named.items():
        if one.default is one.empty and option not in options:
            raise LabError(f"{kind} '{name}': the option '{option}' is missing; set it under [{table}]")


def known_names(name: str, options: Iterable[str], known: Iterable[str], *, kind: str = "task") -> None:
    """Raise LabError on the first option that is not known, with the nearest known one."""
    known = list(known)
    for option in options:
        if option not in known:
            have = f"known: {', '.join(known)}" if known else "it has none"
            raise LabError(f"{kind} '{name}': unknown option '{option}'{nearest(option, known)}; {have}")


def whole(task: str, name: str, value: object, low: int, high: int) -> int:
    """`value` as a whole number from `low` to `high`, or LabError."""
    if type(value) is not int or not low <= value <= high:
        raise LabError(f"task '{task}': {name} = {value!r} must be a whole number from {low} to {high}")
    return value


def share(task: str, name: str, value: object) -> float:
    """`value` as a share, or LabError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise LabError(f"task {task}: {name} is a share between 0 and 1; got {value!r}")
    return float(value)


def flag(task: str, name: str, value: object) -> bool:
    """`value` as true or false, or LabError."""
    if not isinstance(value, bool):
        raise LabError(f"task '{task}': {name} = {value!r} must be true or false")
    return value
