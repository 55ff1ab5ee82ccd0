"""A resolved benchmark: task, problems and sampling settings, and the name of its evaluation."""

import json
import math
import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping, JsonObject, OptionalFloat, OptionalInt
from gspo_lab.study import BenchTable, digest
from gspo_lab.tasks import DATA_OPTIONS, build_task, task_key
from gspo_lab.tasks.base import Problem, Task
from gspo_lab.training.samplers.base import Sampling

DATA = "data"
"""The option of a published benchmark for a local copy of its problems."""


BYTE_LEVEL_TOKENS = 128
"""The default token limit of a published benchmark for an embedded model."""


@dataclass(frozen=True)
class BenchmarkOverrides:
    """Settings that override a task's defaults; None: the default.

    `plain`: raw prompts. LabError: invalid number.
    """

    samples: OptionalInt = None
    temperature: OptionalFloat = None
    top_p: OptionalFloat = None
    max_tokens: OptionalInt = None
    problems: OptionalInt = None
    plain: bool = False

    def __post_init__(self) -> None:
        counts = {
            "--samples": self.samples,
            "--max-tokens": self.max_tokens,
            "--limit": self.problems,
        }
        for option, count in counts.items():
            if count is not None and count < 1:
                raise LabError(f"{option} {count}: must be a whole number from 1 up")
        if self.temperature is not None and not 0 <= self.temperature < math.inf:
            raise LabError(
                f"--temperature {self.temperature}: must be 0 (greedy) or larger; try 0.6"
            )
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise LabError(f"--top-p {self.top_p}: must be a share above 0, up to 1; try 0.95")

    def with_defaults_of(self, table: BenchTable) -> "BenchmarkOverrides":
        """These overrides, and the settings of a study's [[bench]] where there is none."""
        return replace(
            self,
            samples=self.samples or table.samples,
            temperature=table.temperature if self.temperature is None else self.temperature,
            top_p=self.top_p or table.top_p,
            max_tokens=self.max_tokens or table.max_tokens,
            problems=self.problems or table.problems,
        )


@dataclass(frozen=True)
class Bench:
    """A task and its sampling settings. `limited`: the user set the token limit."""

    name: str
    """The name in records: the task's name with release and window, valid as a folder name."""
    task_name: str
    options: JsonMapping
    base: Path
    task: Task
    problems: tuple[Problem, ...]
    samples: int
    sampling: Sampling
    limited: bool
    chat: bool

    @cached_property
    def protocol(self) -> JsonObject:
        """All settings that decide the questions and their grading, independent of the model."""
        return {
            "bench": self.name,
            "task": self._task(),
            "data_digest": self.task.data_digest,
            "prompt_version": self.task.prompt_version,
            "chat": self.chat,
            "grader": self.task.grader,
            "cut_is_wrong": self.task.cut_is_wrong,
            "problems": [problem.id for problem in self.problems],
            "samples": self.samples,
            "temperature": self.sampling.temperature,
            "top_p": self.sampling.top_p,
            "max_tokens": self.sampling.max_tokens,
            "max_tokens_asked_for": self.limited,
            "stop": list(self.sampling.stop),
        }

    def _task(self) -> JsonObject:
        """The task's key without the path of a copy of its problems: their digest identifies
        them.
        """
        key: JsonObject = json.loads(task_key(self.task_name, self.options, self.base, self.task))
        copies = [key["options"].pop(option, None) for option in DATA_OPTIONS]
        key["files"] = {
            path: content for path, content in key["files"].items() if path not in copies
        }
        return key

    @cached_property
    def evaluation(self) -> str:
        """The name of the answers' folder, unique per settings.

        Example: `aime24-k32-t0.6-p0.95-m38912-1b2c3d4e`."""
        sampling = self.sampling
        limited = ""
        if len(self.problems) < self.available:
            limited = f"-n{len(self.problems)}"
        return (
            f"{self.name}{limited}-k{self.samples}-t{sampling.temperature:g}-p{sampling.top_p:g}-m{sampling.max_tokens}"
            f"-{digest(self.protocol)[:8]}"
        )

    @cached_property
    def available(self) -> int:
        """The number of the task's held-out problems."""
        return len(self.task.problems("held-out"))

    def token_limit(self, *, byte_level: bool) -> int:
        """The token limit before the model's context lowers it: defaults fit reasoning models, not
        byte-level ones.
        """
        if byte_level and not self.limited and self.task.defaults.max_tokens is not None:
            return min(self.sampling.max_tokens, BYTE_LEVEL_TOKENS)
        return self.sampling.max_tokens


def bench_of(name: str, options: JsonMapping, base: Path, overrides: BenchmarkOverrides) -> Bench:
    """The benchmark `name` with a task's options and the overrides. LabError for an invalid one."""
    task = build_task(name, options, base, enough=overrides.problems)
    usual = task.defaults
    problems = task.problems("held-out")
    if not problems:
        raise LabError(f"the task '{name}' has no held-out problems")
    sampling = Sampling(
        temperature=usual.temperature if overrides.temperature is None else overrides.temperature,
        top_p=usual.top_p if overrides.top_p is None else overrides.top_p,
        max_tokens=overrides.max_tokens or usual.max_tokens or task.max_tokens,
        stop=task.stop,
    )
    return Bench(
        name=re.sub(r"[^A-Za-z0-9._-]+", "-", task.name),  # a user's task is called "file.py:grade"
        task_name=name,
        options=dict(options),
        base=base,
        task=task,
        problems=tuple(problems[: overrides.problems]),
        samples=overrides.samples or usual.samples,
        sampling=sampling,
        limited=overrides.max_tokens is not None,
        chat=task.chat and not overrides.plain,
    )
