"""The stream of prompts: which problems each step asks, decided by the seed alone; and whether they
can be asked.
"""

import random
from pathlib import Path
from typing import Any

from gspo_lab.common.errors import LabError
from gspo_lab.study import Run, Settings, digest
from gspo_lab.tasks import build_task, check_isolation, task_key
from gspo_lab.tasks.base import Problem, Problems, Task
from gspo_lab.training.models.load import encode_prompt
from gspo_lab.training.models.wording import options_for
from gspo_lab.training.samplers.base import Sampling, noise_key


class PromptStream:
    """All training problems in a random order, in another when they are used up. It depends on the
    seed, not on the arm."""

    def __init__(self, problems: Problems, seed: int, per_step: int, order: str = "order") -> None:
        self._problems = problems
        self._key = (seed, order)
        self._per_step = per_step
        self._epoch = -1
        self._order: list[int] = []

    def step(self, step: int) -> list[Problem]:
        """The problems of one step; the same list whenever it is asked for."""
        return self.take(step * self._per_step, self._per_step)

    def take(self, start: int, count: int) -> list[Problem]:
        """`count` problems from place `start` of the stream on."""
        return [self._problems[self._index(place)] for place in range(start, start + count)]

    def _index(self, place: int) -> int:
        epoch, offset = divmod(place, len(self._problems))
        if epoch != self._epoch:
            self._order = list(range(len(self._problems)))
            random.Random(noise_key(*self._key, epoch)).shuffle(self._order)
            self._epoch = epoch
        return self._order[offset]


def tasks_of(run: Run) -> tuple[Task, dict[str, Task], dict[str, str]]:
    """The task that a run trains on, each benchmark's, and what identifies each, "train" the first:
    a digest of its name, its options and the user's files behind it. LabError where one lacks the
    isolation that it asks for.
    """
    settings = run.settings
    base = Path(run.base)
    tables = {
        "train": settings.task,
        **{bench.name: bench.task or settings.task for bench in settings.bench},
    }
    for table in tables.values():
        check_isolation(table.name, table.options)
    options = {name: options_for(table, run.model) for name, table in tables.items()}
    task = build_task(settings.task.name, options["train"], base)
    benches = {
        bench.name: (
            task if bench.task is None else build_task(bench.task.name, options[bench.name], base)
        )
        for bench in settings.bench
    }
    return (
        task,
        benches,
        {name: digest(task_key(tables[name].name, options[name], base)) for name in tables},
    )


def training_prompts(run: Run, task: Task) -> PromptStream:
    """The stream of a run's training prompts, the same for every engine."""
    return PromptStream(task.problems("train"), run.seed, run.settings.rollout.prompts_per_step)


def training_sampling(settings: Settings, task: Task) -> Sampling:
    """How training prompts are asked: the study's limit and stops, or the task's."""
    rollout = settings.rollout
    stop = task.stop if rollout.stop is None else tuple(rollout.stop)
    return Sampling(rollout.temperature, rollout.top_p, rollout.max_tokens or task.max_tokens, stop)


def check_fit(problems: Problems, tokenizer: Any, context: int | None) -> None:
    """LabError where a problem's prompt leaves no token of the model's context for a response."""
    if context is None or not problems:
        return
    # A text has at least as many bytes as tokens, and a template adds to each what it adds to one:
    # most pass by that.
    around = len(encode_prompt(tokenizer, problems[0].prompt))
    doubtful = [
        problem
        for problem in problems
        if len(problem.prompt.encode(errors="replace")) + around >= context
    ]
    lengths = {problem.id: len(encode_prompt(tokenizer, problem.prompt)) for problem in doubtful}
    if too_long := {name: length for name, length in lengths.items() if length >= context}:
        name = max(too_long, key=too_long.__getitem__)
        raise LabError(
            f"{len(too_long)} of {len(problems)} training problems leave no room for an answer in"
            f" the model's context of {context} tokens; the longest, '{name}', has"
            f" {too_long[name]}: leave them out, or take a model with a longer context"
        )
