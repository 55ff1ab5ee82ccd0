"""One start of an external program for a run: its folder below the run's, and what lies in it.

    NAME/                       the engine's name
      model/                    the model that the program starts from, where the lab makes it
      attempt-1/
        attempt.json            the run, the step that this attempt starts with, the tokens that
                                end a response
        lib/gspo_lab            this package, for the program's processes
        log.jsonl               what the program says of each rollout batch, a line each
        answers.jsonl           every answer, by the processes that asked
        updates.jsonl           every update, by the first training process
        ...                     prompts and configuration, as the program reads them

The lab reads the three logs. Every start has its own, because a program may empty its log when it
opens it.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from gspo_lab.common.atomic_files import read_json, write_json
from gspo_lab.common.plain_data import Integers, JsonMapping, JsonObject, Strings
from gspo_lab.study import Run
from gspo_lab.study.schema import TaskTable
from gspo_lab.tasks import Problem, Task, build_task
from gspo_lab.training.models.wording import options_for

PR_SET_PDEATHSIG = 1  # prctl(2)


WORKER = "GSPO_LAB_WORKER"
"""The environment variable with the worker's process id: the worker may end while this program
still imports.
"""


def end_with_parent() -> None:
    """Have SIGTERM sent to this process when its parent ends. Processes that it has started must
    see to their own end.
    """
    parent = int(os.environ.get(WORKER, os.getppid()))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit("the worker is gone")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A problem and how it is asked. `place` is its index in the benchmark, or in the training step
    if `bench` is "".
    """

    problem: Problem
    bench: str
    step: int
    place: int
    samples: int
    temperature: float
    top_p: float
    max_tokens: int
    stop: Strings

    def to_json(self) -> JsonObject:
        """Plain data, which `from_json` reads back."""
        problem = {name: getattr(self.problem, name) for name in ("id", "prompt", "reference")}
        return asdict(self) | {"problem": problem, "stop": list(self.stop)}

    @staticmethod
    def from_json(data: JsonMapping) -> "Prompt":
        """The prompt of what `to_json` made, as the program hands it back."""
        fields = {name: data[name] for name in Prompt.__dataclass_fields__}
        return Prompt(
            **{**fields, "problem": Problem(**data["problem"]), "stop": tuple(data["stop"] or ())}
        )


def every_training_prompt(run: Run, task: Task) -> Iterator[Prompt]:
    """All training prompts of the run, step after step, in the order in which every engine asks
    them.
    """
    from gspo_lab.training.engines.native.prompt_stream import (
        training_prompts,
        training_sampling,
    )  # with torch

    stream = training_prompts(run, task)
    sampling = training_sampling(run.settings, task)
    group = run.settings.rollout.group_size
    for step in range(run.settings.steps):
        for place, problem in enumerate(stream.step(step)):
            yield Prompt(
                problem,
                "",
                step,
                place,
                group,
                sampling.temperature,
                sampling.top_p,
                sampling.max_tokens,
                sampling.stop,
            )


def every_bench_prompt(run: Run, tasks: Mapping[str, Task]) -> Iterator[Prompt]:
    """The problems of all benchmarks, one benchmark after the other."""
    for bench in run.settings.bench:
        task = tasks[bench.name]
        sampling = (
            bench.samples,
            bench.temperature,
            bench.top_p,
            bench.max_tokens or task.max_tokens,
            task.stop,
        )
        for place, problem in enumerate(task.problems("held-out")[: bench.problems]):
            yield Prompt(problem, bench.name, 0, place, *sampling)


def task_of(run: Run, table: TaskTable) -> Task:
    """Build one of the run's tasks."""
    return build_task(table.name, options_for(table, run.model), Path(run.base))


ATTEMPT = "attempt.json"
LIB = "lib"
LOG = "log.jsonl"
ANSWERS = "answers.jsonl"
UPDATES = "updates.jsonl"
FOLDER = "GSPO_LAB_ATTEMPT"
"""Environment variable of the program's processes: the attempt's folder."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What the lab tells the program's processes."""

    path: Path
    run: Run
    first_step: int
    """How many steps were complete when it began."""
    eos_ids: Integers

    @property
    def home(self) -> Path:
        """The folder of all attempts, with what outlasts them."""
        return self.path.parent

    def write(self) -> None:
        """Write attempt.json into its folder."""
        write_json(
            self.path / ATTEMPT,
            {
                "run": self.run.to_json(),
                "first_step": self.first_step,
                "eos_ids": list(self.eos_ids),
            },
        )

    @staticmethod
    def read(path: Path) -> "Attempt":
        """The attempt of a folder."""
        data = read_json(path / ATTEMPT)
        assert data is not None, f"{path / ATTEMPT} is missing"
        return Attempt(path, Run.from_json(data["run"]), data["first_step"], tuple(data["eos_ids"]))


@cache
def current() -> Attempt:
    """The attempt that this process of the program is part of."""
    return Attempt.read(Path(os.environ[FOLDER]))


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedAttempt:
    """What every program's configuration is made of."""

    attempt: Attempt
    on_gpu: bool
    model: str
    """A folder or a Hub id."""
    training: Sequence[Prompt]
    benches: Sequence[Prompt]
    """The benchmark prompts that the program asks."""
    prompt_tokens: int
    """Tokens of the longest prompt."""
    response_tokens: int
    """The largest token limit of a response."""
    task: Task
    bench_tasks: Mapping[str, Task]
    facts: JsonObject


def for_plugin(attempt: Path) -> dict[str, str]:
    """Environment variables by which the program's processes find the attempt and this package."""
    return {FOLDER: str(attempt), "PYTHONPATH": str(attempt / LIB)}
