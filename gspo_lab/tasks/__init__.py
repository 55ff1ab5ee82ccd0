"""Tasks: problems and graders, reward and benchmark alike. This file is the room's door and its table."""

import hashlib
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from types import MethodType
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.registry import look_up, one_line_error
from gspo_lab.tasks.base import Defaults, Grade, Problem, ReplyError, Task, Turn, check_options, grade_answer
from gspo_lab.tasks.custom import signature_of

__all__ = [
    "BENCHMARKS",
    "TASKS",
    "Defaults",
    "Grade",
    "Problem",
    "ReplyError",
    "Task",
    "Turn",
    "build_task",
    "check_isolation",
    "grade_answer",
    "task_key",
    "without_sandbox",
]

TASKS = {
    "addition": "gspo_lab.tasks.addition:Addition",
    "calculator": "gspo_lab.tasks.calculator:Calculator",
    "chain": "gspo_lab.tasks.chain:Chain",
    "countdown": "gspo_lab.tasks.countdown:Countdown",
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

KNOWN = TASKS | BENCHMARKS

WORDS = "words"
"""The option of the built-in tasks by which they ask in sentences."""

LATER = (WORDS, "partial")
"""Options that are younger than keys that are recorded: left out where they stand at their defaults."""

DATA_OPTIONS = ("data", "train_data")
"""Options of benchmarks that name a file or folder, from the study's folder."""

EDITION = 1
"""Raised when the problems or demonstrations of a built-in task change, so that no cache keeps the old ones."""

PARTS = ("name", "grader", "stop", "max_tokens", "problems", "grade")
UNSAID = {
    "prompt_version": Task.prompt_version,
    "data_digest": None,
    "defaults": Task.defaults,
    "chat": Task.chat,
    "cut_is_wrong": Task.cut_is_wrong,
    "max_turns": Task.max_turns,
    "fault": Task.fault,
    "reply": Task.reply,
    "grade_turns": Task.grade_turns,
}
"""What a task of one's own may leave out, and what then counts."""


def build_task(name: str, options: Mapping[str, Any], base: Path | None = None, *, enough: int | None = None) -> Task:
    """The task `name` with the study's `options`; files are looked for from the folder `base`.

    `"module:thing"` and `"file.py:thing"` name a class (or any callable) that is called with the options and gives a
    `Task`, or a grader: a plain function with two required parameters, `grade(problem, answer)` (see `custom.py`), or a
    reward function of TRL's or verl's signature. With `enough`, the user's own copy of a published
    benchmark may hold fewer problems than were published, but at least so many.
    """
    name, options = _in_name(name, options)
    made_by = look_up("task", name, KNOWN, base)
    if name in BENCHMARKS:
        options = options | {key: str((base or Path()) / options[key]) for key in DATA_OPTIONS if options.get(key)}
    if ":" in name and signature_of(made_by) is not None:
        from gspo_lab.tasks.custom import read_custom

        return read_custom(name, made_by, options, base or Path())
    if not callable(made_by):
        raise LabError(f"task '{name}': it is {type(made_by).__name__}, not a class or a function")
    task = _made(name, made_by, options)
    if name in BENCHMARKS:
        task.enough = enough
    for part in PARTS:
        if not hasattr(task, part):
            raise LabError(f"task '{name}': what it makes has no '{part}'; see gspo_lab.tasks.base.Task")
    if Task not in type(task).__mro__:  # which has all of it, and may have to read files to say it
        for part, value in UNSAID.items():
            if not hasattr(task, part):
                setattr(task, part, MethodType(value, task) if callable(value) else value)
    if task.max_turns > 1 and getattr(task.reply, "__func__", None) is Task.reply:
        raise LabError(f"task '{name}': it has {task.max_turns} turns and no 'reply'; see gspo_lab.tasks.base.Task")
    built: Task = task
    return built


def without_sandbox(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """A task's options with leave to run programs without isolation where none holds; of other tasks as they are."""
    return {**options, "unsafe": True} if _runs_programs(_in_name(name, {})[0]) else dict(options)


def check_isolation(name: str, options: Mapping[str, Any]) -> None:
    """LabError where a task runs programs, nothing isolates them on this machine, and `unsafe` is not set.

    To be asked before a model is: an answer that is not graded is missing in every score.
    """
    name, options = _in_name(name, options)
    if _runs_programs(name):
        from gspo_lab.sandbox import Sandbox

        Sandbox.open(slots=1, unsafe=bool(options.get("unsafe"))).close()


def task_key(name: str, options: Mapping[str, Any], base: Path | None = None, task: Task | None = None) -> str:
    """What a task is, as one canonical line: equal keys mean equal problems, demonstrations and grading.

    Options of a built-in task that are not given count with their defaults. Files that the name or an option names
    (a user's code and problems, where they exist under `base`) count with their content. `task` is the one that
    `build_task` made of these, where the caller has it.
    """
    name, options = _in_name(name, options)
    named = [name.rpartition(":")[0], *(value for value in options.values() if isinstance(value, str))]
    paths = {text: (base or Path()) / text for text in named if 0 < len(text) < 200}
    key: dict[str, Any] = {"name": name, "options": options}
    if name in KNOWN:
        parameters = inspect.signature(look_up("task", name, KNOWN, base)).parameters.values()
        defaults = {param.name: param.default for param in parameters if param.default is not param.empty}
        for option in LATER:
            defaults.pop(option, None)
        key["options"] = defaults | options
        key["edition"] = EDITION
    if name in BENCHMARKS:
        key["data"] = (task or build_task(name, options, base)).data_digest
    key["files"] = {text: _digest(path) for text, path in paths.items() if path.is_file()}
    return json.dumps(key, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)


def _runs_programs(name: str) -> bool:
    return name in BENCHMARKS and bool(look_up("task", name, BENCHMARKS).runs_programs)


def _in_name(name: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A name that holds options of its own, `livecodebench-v5-2408-2502`, as the task's name and all options."""
    stem, dash, _ = name.partition("-")
    if not dash or stem not in BENCHMARKS:
        return name, dict(options)
    held: Mapping[str, str] = look_up("task", stem, BENCHMARKS).options_in(name)
    for key, value in held.items():
        if options.get(key, value) != value:
            raise LabError(f"task '{name}': {key} = {options[key]!r} is not what the name says")
    return stem, {**options, **held}


def _made(name: str, made_by: Any, options: Mapping[str, Any]) -> Any:
    try:
        check_options(name, options, inspect.signature(made_by).parameters.values())
        return made_by(**options)
    except LabError:
        raise
    except Exception as error:
        if name in KNOWN:
            raise
        raise LabError(f"task '{name}': making it failed with {one_line_error(error)}") from error


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
