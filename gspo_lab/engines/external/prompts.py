"""The prompts of a run as other programs are given them: in the lab's order, each with all that asking needs."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gspo_lab.models.wording import options_for
from gspo_lab.study import Run
from gspo_lab.study.schema import TaskTable
from gspo_lab.tasks import Problem, Task, build_task


@dataclass(frozen=True, slots=True)
class Prompt:
    """A problem and how it is asked: by a benchmark, or as the `place`-th of a training step (`bench` is "")."""

    problem: Problem
    bench: str
    step: int
    place: int
    samples: int
    temperature: float
    top_p: float
    max_tokens: int
    stop: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """What `of` reads back."""
        problem = {name: getattr(self.problem, name) for name in ("id", "prompt", "reference")}
        return asdict(self) | {"problem": problem, "stop": list(self.stop)}

    @staticmethod
    def of(data: Mapping[str, Any]) -> "Prompt":
        """What `to_json` made of it, as the program hands it back."""
        fields = {name: data[name] for name in Prompt.__dataclass_fields__}
        return Prompt(**{**fields, "problem": Problem(**data["problem"]), "stop": tuple(data["stop"] or ())})


def every_training_prompt(run: Run, task: Task) -> Iterator[Prompt]:
    """All training prompts of the run, step after step, in the order in which every engine asks them."""
    from gspo_lab.engines.native.prompts import training_prompts, training_sampling  # with torch

    stream, how = training_prompts(run, task), training_sampling(run.settings, task)
    group = run.settings.rollout.group_size
    for step in range(run.settings.steps):
        for place, problem in enumerate(stream.step(step)):
            yield Prompt(problem, "", step, place, group, how.temperature, how.top_p, how.max_tokens, how.stop)


def every_bench_prompt(run: Run, tasks: Mapping[str, Task]) -> Iterator[Prompt]:
    """The problems of all benchmarks, one benchmark after the other."""
    for bench in run.settings.bench:
        task = tasks[bench.name]
        how = (bench.samples, bench.temperature, bench.top_p, bench.max_tokens or task.max_tokens, task.stop)
        for place, problem in enumerate(task.problems("held-out")[: bench.problems]):
            yield Prompt(problem, bench.name, 0, place, *how)


def task_of(run: Run, table: TaskTable) -> Task:
    """A task of the run's."""
    return build_task(table.name, options_for(table, run.settings.model), Path(run.base))
