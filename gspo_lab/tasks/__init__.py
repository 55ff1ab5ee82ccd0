"""Tasks: problems and graders, reward and benchmark alike. This file is the room's door and its table."""

import hashlib
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.registry import look_up
from gspo_lab.tasks.base import Grade, Problem, Task
from gspo_lab.tasks.options import check_options

__all__ = ["TASKS", "Grade", "Problem", "Task", "build_task", "task_key"]

TASKS = {
    "addition": "gspo_lab.tasks.addition:Addition",
    "countdown": "gspo_lab.tasks.countdown:Countdown",
}

EDITION = 1
"""Raised when the problems or demonstrations of a built-in task change, so that no cache keeps the old ones."""

PARTS = ("name", "grader", "stop", "max_tokens", "problems", "grade")


def build_task(name: str, options: Mapping[str, Any], base: Path | None = None) -> Task:
    """The task `name` with the study's `options`; files are looked for from the folder `base`.

    `"module:thing"` and `"file.py:thing"` name a class (or any callable) that is called with the options and gives a
    `Task`, or a grader: a plain function with two required parameters, `grade(problem, answer)` (see `custom.py`).
    """
    found = _found(name, base)
    if ":" in name and _is_grader(found):
        from gspo_lab.tasks.custom import read_custom

        return read_custom(name, found, options, base or Path())
    if not callable(found):
        raise LabError(f"task '{name}': it is {type(found).__name__}, not a class or a function")
    check_options(name, options, inspect.signature(found).parameters.values())
    task = found(**options)
    for part in PARTS:
        if not hasattr(task, part):
            raise LabError(f"task '{name}': what it makes has no '{part}'; see gspo_lab.tasks.base.Task")
    built: Task = task
    return built


def task_key(name: str, options: Mapping[str, Any], base: Path | None = None) -> str:
    """What a task is, as one canonical line: equal keys mean equal problems, demonstrations and grading.

    Options of a built-in task that are not given count with their defaults. Files that the name or an option names
    (a user's code and problems, where they exist under `base`) count with their content.
    """
    options = dict(options)
    named = [name.rpartition(":")[0], *(value for value in options.values() if isinstance(value, str))]
    paths = {text: (base or Path()) / text for text in named if 0 < len(text) < 200}
    key: dict[str, Any] = {"name": name, "options": options}
    if name in TASKS:
        parameters = inspect.signature(_found(name, base)).parameters.values()
        key["options"] = {one.name: one.default for one in parameters if one.default is not one.empty} | options
        key["edition"] = EDITION
    key["files"] = {text: _digest(path) for text, path in paths.items() if path.is_file()}
    return json.dumps(key, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)


def _found(name: str, base: Path | None) -> Any:
    try:
        return look_up("task", name, TASKS, base)
    except LabError:
        raise
    except Exception as error:
        if name in TASKS:
            raise
        # A user's file runs when it is imported, and may fail in any way.
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise LabError(f"task '{name}': importing it failed with {told}") from error


def _is_grader(found: Any) -> bool:
    if not inspect.isfunction(found):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(found).parameters.values()
    return sum(one.default is one.empty and one.kind in positional for one in parameters) == 2


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
