"""One start of a program for a run: a folder of its own below the run's, and what lies in it.

    NAME/                       the engine's name
      model/                    the model that the program starts from, where the lab makes it
      attempt-1/
        attempt.json            the run, the step that this attempt starts with, the tokens that end a response
        lib/gspo_lab            this package, for the program's processes
        log.jsonl               what the program says of each rollout batch, a line each
        answers.jsonl           every answer, by the processes that asked
        updates.jsonl           every update, by the first training process
        ...                     prompts and configuration, as the program reads them

The lab reads the three logs. Every start has its own, because a program may empty its log when it opens it.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gspo_lab.engines.external.prompts import Prompt
from gspo_lab.files import read_json, write_json
from gspo_lab.study import Run
from gspo_lab.tasks import Task

ATTEMPT, LIB, LOG, ANSWERS, UPDATES = "attempt.json", "lib", "log.jsonl", "answers.jsonl", "updates.jsonl"
FOLDER = "GSPO_LAB_ATTEMPT"
"""Environment variable of the program's processes: the attempt's folder."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What the program's processes read of the lab."""

    path: Path
    run: Run
    first: int
    """The steps that were complete when it began."""
    eos_ids: tuple[int, ...]

    @property
    def home(self) -> Path:
        """The folder of all attempts, with what outlasts them."""
        return self.path.parent

    def write(self) -> None:
        """Into its folder."""
        write_json(self.path / ATTEMPT, {"run": self.run.to_json(), "first": self.first, "eos_ids": list(self.eos_ids)})

    @staticmethod
    def read(path: Path) -> "Attempt":
        """What was written into a folder."""
        data = read_json(path / ATTEMPT)
        assert data is not None, f"{path / ATTEMPT} is missing"
        return Attempt(path, Run.from_json(data["run"]), data["first"], tuple(data["eos_ids"]))


@cache
def current() -> Attempt:
    """The attempt that this process of the program is part of."""
    return Attempt.read(Path(os.environ[FOLDER]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What every program's configuration is made of."""

    attempt: Attempt
    model: str
    """A folder or a Hub id."""
    training: Sequence[Prompt]
    benches: Sequence[Prompt]
    """Those that the program asks."""
    prompt_tokens: int
    """Of the longest prompt."""
    response_tokens: int
    """The longest limit."""
    task: Task
    bench_tasks: Mapping[str, Task]
    facts: dict[str, Any]


def for_plugin(attempt: Path) -> dict[str, str]:
    """By what the program's processes find the attempt and this package."""
    return {FOLDER: str(attempt), "PYTHONPATH": str(attempt / LIB)}
