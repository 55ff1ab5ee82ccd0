"""Tasks: problems and graders, for training and for benchmarks. This file holds their table."""

import hashlib
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from types import MethodType
from typing import Any

from gspo_lab.common.errors import LabError
from gspo_lab.common.paths import beside
from gspo_lab.common.plain_data import JsonMapping, JsonObject
from gspo_lab.common.registry import look_up, one_line_error
from gspo_lab.tasks.base import (
    Defaults,
    Grade,
    Problem,
    ReplyError,
    Task,
    Turn,
    check_options,
    grade_answer,
)
from gspo_lab.tasks.custom import read_custom
from gspo_lab.tasks.reward_functions import signature_of

__all__ = ["BENCHMARKS", "TASKS", "Defaults", "Grade", "Problem", "ReplyError", "Task", "Turn"]
__all__ += ["build_task", "check_isolation", "grade_answer", "task_key", "without_sandbox"]

TASKS = {
    "addition": "gspo_lab.tasks.addition:Addition",
    "chain": "gspo_lab.tasks.chain:Chain",
    "guess": "gspo_lab.tasks.guess:Guess",
}

BENCHMARKS = {
    "aime24": "gspo_lab.tasks.benchmarks.aime:Aime24",
    "aime25": "gspo_lab.tasks.benchmarks.aime:Aime25",
    "math500": "gspo_lab.tasks.benchmarks.math500:Math500",
    "gsm8k": "gspo_lab.tasks.benchmarks.gsm8k:Gsm8k",
    "livecodebench": "gspo_lab.tasks.benchmarks.livecodebench:LiveCodeBench",
    "codeforces": "gspo_lab.tasks.benchmarks.codeforces:Codeforces",
}
"""Published benchmarks: tasks whose problems come from files (docs/reference/benchmarks.md)."""

GYM = "reasoning_gym"
"""`reasoning_gym:NAME` is a task of the package reasoning-gym."""

KNOWN = TASKS | BENCHMARKS | {GYM: "gspo_lab.tasks.reasoning_gym:ReasoningGym"}

WORDS = "words"
"""The option of built-in tasks that turns questions into sentences."""

DATA_OPTIONS = ("data", "train_data")
"""Options of benchmarks for a file or folder, relative to the study's folder."""

EDITION = 1
"""Increase it when problems or demonstrations of a built-in task change, so that caches are not
reused.
"""

PARTS = ("name", "grader", "stop", "max_tokens", "problems", "grade")
UNSAID = (
    "prompt_version",
    "defaults",
    "chat",
    "cut_is_wrong",
    "max_turns",
    "reward_names",
    "fault",
    "reply",
    "grade_turns",
)
"""Attributes that a user's task may leave out: it gets those of `Task`, and no `data_digest`."""


def build_task(
    name: str, options: JsonMapping, base: Path | None = None, *, enough: int | None = None
) -> Task:
    """The task `name` with the study's `options`; files are relative to the folder `base`.

    `"module:attribute"` and `"file.py:attribute"` name a class (or another callable) that returns a
    `Task` for the options, or a grader: `grade(problem, answer)` (see `custom.py`), or a reward
    function of TRL or verl. With `enough`, a user's copy of a published benchmark may hold fewer
    problems, but at least so many.
    """
    name, options = _in_name(name, options)
    made_by = look_up("task", name, KNOWN, base)
    if name in BENCHMARKS:
        options = options | {
            key: str(beside(base, options[key])) for key in DATA_OPTIONS if options.get(key)
        }
    if ":" in name and signature_of(made_by) is not None:
        return read_custom(name, made_by, options, base or Path())
    task = _call_factory(name, made_by, options)
    if name in BENCHMARKS:
        task.enough = enough
    return _with_defaults(name, task)


def _call_factory(name: str, made_by: Any, options: JsonMapping) -> Any:
    """What a task's class or function returns for the options."""
    if not callable(made_by):
        raise LabError(f"task '{name}': it is {type(made_by).__name__}, not a class or a function")
    try:
        check_options(name, options, inspect.signature(made_by).parameters.values())
        return made_by(**options)
    except LabError:
        raise
    except Exception as error:
        if name in KNOWN:
            raise
        raise LabError(f"task '{name}': making it failed with {one_line_error(error)}") from error


def _with_defaults(name: str, task: Any) -> Task:
    """The task with the attributes of `Task` that its own class leaves out.

    LabError where a required one is missing.
    """
    for part in PARTS:
        if not hasattr(task, part):
            raise LabError(
                f"task '{name}': what it makes has no '{part}'; see gspo_lab.tasks.base.Task"
            )
    if Task not in type(task).__mro__:  # a subclass has them all, and may read files for them
        values = {part: getattr(Task, part) for part in UNSAID} | {"data_digest": None}
        for part, value in values.items():
            if not hasattr(task, part):
                setattr(task, part, MethodType(value, task) if callable(value) else value)
    if task.max_turns > 1 and getattr(task.reply, "__func__", None) is Task.reply:
        raise LabError(
            f"task '{name}': it has {task.max_turns} turns and no 'reply'; see"
            " gspo_lab.tasks.base.Task"
        )
    built: Task = task
    return built


def without_sandbox(name: str, options: JsonMapping) -> JsonObject:
    """The options that allow programs to run without isolation; unchanged for tasks without
    programs.
    """
    return {**options, "unsafe": True} if _runs_programs(_in_name(name, {})[0]) else dict(options)


def check_isolation(name: str, options: JsonMapping) -> None:
    """LabError if a task runs programs, this machine cannot isolate them, and `unsafe` is not set.

    Check it before sampling: ungraded answers are missing in every score.
    """
    name, options = _in_name(name, options)
    if _runs_programs(name):
        from gspo_lab.tasks.sandbox import Sandbox

        Sandbox.open(slots=1, unsafe=bool(options.get("unsafe"))).close()


def task_key(
    name: str, options: JsonMapping, base: Path | None = None, task: Task | None = None
) -> str:
    """A canonical line that identifies a task: equal keys mean equal problems, demonstrations and
    grading.

    It contains the defaults of a built-in task, and the content of files that the name or an option
    names (a user's code and problems under `base`). `task`: the result of `build_task`, if the
    caller has it.
    """
    name, options = _in_name(name, options)
    names = [
        name.rpartition(":")[0],
        *(value for value in options.values() if isinstance(value, str)),
    ]
    paths = {text: beside(base, text) for text in names if 0 < len(text) < 200}
    key: JsonObject = {"name": name, "options": options}
    if name in KNOWN:
        parameters = inspect.signature(look_up("task", name, KNOWN, base)).parameters.values()
        defaults = {
            param.name: param.default for param in parameters if param.default is not param.empty
        }
        key["options"] = defaults | options
        key["edition"] = EDITION
    if name in BENCHMARKS:
        key["data"] = (task or build_task(name, options, base)).data_digest
    contents = {text: path.read_bytes() for text, path in paths.items() if path.is_file()}
    key["files"] = {
        text: hashlib.sha256(content).hexdigest()[:16] for text, content in contents.items()
    }
    return json.dumps(key, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)


def _runs_programs(name: str) -> bool:
    return name in BENCHMARKS and bool(look_up("task", name, BENCHMARKS).runs_programs)


def _in_name(name: str, options: JsonMapping) -> tuple[str, JsonObject]:
    """Split a name that contains options, `livecodebench-v5-2408-2502`, into the task's name and
    all options.
    """
    package, colon, dataset = name.partition(":")
    if package == GYM:
        return GYM, {**options, "dataset": dataset} if colon else dict(options)
    stem, dash, _ = name.partition("-")
    if not dash or stem not in BENCHMARKS:
        return name, dict(options)
    name_options: Mapping[str, str] = look_up("task", stem, BENCHMARKS).options_in(name)
    for key, value in name_options.items():
        if options.get(key, value) != value:
            raise LabError(f"task '{name}': {key} = {options[key]!r} is not what the name says")
    return stem, {**options, **name_options}
