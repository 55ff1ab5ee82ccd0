"""A benchmark as it is asked: task, problems and sampling, everything resolved, and the name that tells it apart."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.samplers.base import Sampling
from gspo_lab.study import digest
from gspo_lab.tasks import DATA_OPTIONS, build_task, task_key
from gspo_lab.tasks.base import Problem, Task

DATA = "data"
"""The option of a published benchmark that names a local copy of its problems."""


BYTE_LEVEL_TOKENS = 128
"""The default token limit of a published benchmark for an embedded model."""


@dataclass(frozen=True)
class Wish:
    """How somebody wants a benchmark to be asked; what is None is as the task has it by default.

    `plain`: as bare prompts, without a chat template, whatever the task says. LabError for numbers that make no sense.
    """

    samples: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    problems: int | None = None
    plain: bool = False

    def __post_init__(self) -> None:
        whole = {"--samples": self.samples, "--max-tokens": self.max_tokens, "--limit": self.problems}
        for option, count in whole.items():
            if count is not None and count < 1:
                raise LabError(f"{option} {count}: a whole number from 1 up is wanted")
        if self.temperature is not None and not 0 <= self.temperature < math.inf:
            raise LabError(f"--temperature {self.temperature}: a number from 0 (greedy) up is wanted")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise LabError(f"--top-p {self.top_p}: a share above 0, up to 1, is wanted")


@dataclass(frozen=True)
class Bench:
    """A task and how it is asked. `limited`: somebody asked for this very token limit."""

    name: str
    """As in records: the task's own name, of which release and window are part, fit for a folder."""
    task_name: str
    options: Mapping[str, Any]
    base: Path
    task: Task
    problems: tuple[Problem, ...]
    samples: int
    sampling: Sampling
    limited: bool
    chat: bool

    @cached_property
    def asked(self) -> dict[str, Any]:
        """Everything that decides what is asked and how it is graded, whoever answers."""
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

    def _task(self) -> dict[str, Any]:
        """The task's key without where a copy of its problems lies: the digest of the problems says what they are."""
        key: dict[str, Any] = json.loads(task_key(self.task_name, self.options, self.base, self.task))
        copies = [key["options"].pop(option, None) for option in DATA_OPTIONS]
        key["files"] = {path: content for path, content in key["files"].items() if path not in copies}
        return key

    @cached_property
    def evaluation(self) -> str:
        """The name of the folder of answers: `aime24-k32-t0.6-p0.95-m38912-1b2c3d4e`; other settings, another name."""
        how = self.sampling
        some = f"-n{len(self.problems)}" if len(self.problems) < self.available else ""
        return (
            f"{self.name}{some}-k{self.samples}-t{how.temperature:g}-p{how.top_p:g}-m{how.max_tokens}"
            f"-{digest(self.asked)[:8]}"
        )

    @cached_property
    def available(self) -> int:
        """How many held-out problems the task has."""
        return len(self.task.problems("held-out"))

    def token_limit(self, *, byte_level: bool) -> int:
        """The most tokens of an answer, before the model's context has its say.

        A published benchmark's default fits thinking models. An embedded, byte-level model has nothing to think with
        and no end in sight: unless somebody asked for more it gets what fits a right answer comfortably.
        """
        if byte_level and not self.limited and self.task.defaults.max_tokens is not None:
            return min(self.sampling.max_tokens, BYTE_LEVEL_TOKENS)
        return self.sampling.max_tokens


def bench_of(name: str, options: Mapping[str, Any], base: Path, wish: Wish) -> Bench:
    """The benchmark `name` with a task's options, asked as wished. LabError for what cannot be."""
    task = build_task(name, options, base, enough=wish.problems)
    usual = task.defaults
    problems = task.problems("held-out")
    if not problems:
        raise LabError(f"the task '{name}' has no held-out problems to ask")
    sampling = Sampling(
        temperature=usual.temperature if wish.temperature is None else wish.temperature,
        top_p=usual.top_p if wish.top_p is None else wish.top_p,
        max_tokens=wish.max_tokens or usual.max_tokens or task.max_tokens,
        stop=task.stop,
    )
    return Bench(
        name=re.sub(r"[^A-Za-z0-9._-]+", "-", task.name),  # a task of one's own is called "file.py:grade"
        task_name=name,
        options=dict(options),
        base=base,
        task=task,
        problems=tuple(problems[: wish.problems]),
        samples=wish.samples or usual.samples,
        sampling=sampling,
        limited=wish.max_tokens is not None,
        chat=task.chat and not wish.plain,
    )
