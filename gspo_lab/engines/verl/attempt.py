"""One start of verl for a run: a folder of its own below the run's, and what lies in it.

    verl/
      model/                    the model that verl starts from, where the lab makes it
      checkpoints/global_step_N verl's own
      attempt-1/
        attempt.json            the run, the step that this attempt goes on from, the tokens that end a response
        train.jsonl, val.jsonl  the prompts in the lab's order; the benchmarks' problems
        agent.yaml              names the lab's way of asking to verl
        overrides.txt           verl's configuration as its command line has it
        lib/gspo_lab            this package, for verl's processes
        metrics.jsonl           verl's file logger: one line per rollout batch
        answers.jsonl           every answer, by those who asked
        updates.jsonl           every update, by the first training process

The lab reads the last three; verl empties its log when it opens it, so that every start needs its own.
"""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gspo_lab.files import read_json, write_json
from gspo_lab.study import Run

HOME, MODEL, CHECKPOINTS = "verl", "model", "checkpoints"
SAID, TRAIN, VAL, AGENT, OVERRIDES, LIB = (
    "attempt.json",
    "train.jsonl",
    "val.jsonl",
    "agent.yaml",
    "overrides.txt",
    "lib",
)
METRICS, ANSWERS, UPDATES = "metrics.jsonl", "answers.jsonl", "updates.jsonl"

FOLDER = "GSPO_LAB_VERL_ATTEMPT"
"""Environment variable of verl's processes: the attempt's folder."""
DEVICE = "gspo-lab"
"""The device by whose name verl finds the lab's engines (VERL_ENGINE_DEVICE)."""
PREFIX = "lab-"
LOSSES = ("vanilla", "gspo")
"""verl's policy losses that the lab watches, each registered as PREFIX + its name."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What verl's processes read of the lab."""

    path: Path
    run: Run
    first: int
    """The steps that were complete when it began."""
    eos_ids: tuple[int, ...]

    def write(self) -> None:
        """Into its folder."""
        said: dict[str, Any] = {"run": self.run.to_json(), "first": self.first, "eos_ids": list(self.eos_ids)}
        write_json(self.path / SAID, said)

    @staticmethod
    def read(path: Path) -> "Attempt":
        """What was written into a folder."""
        said = read_json(path / SAID)
        assert said is not None, f"{path / SAID} is missing"
        return Attempt(path, Run.from_json(said["run"]), said["first"], tuple(said["eos_ids"]))


@cache
def current() -> Attempt:
    """The attempt that this process of verl's is part of."""
    return Attempt.read(Path(os.environ[FOLDER]))
