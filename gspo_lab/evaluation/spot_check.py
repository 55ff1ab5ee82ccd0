"""Some of a run's stored answers graded again, and all of its questions held against its task."""

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gspo_lab.errors import LabError
from gspo_lab.evaluation.ask import questions
from gspo_lab.evaluation.regrade import Stored, regrade, tasks_of
from gspo_lab.runfolder import RunFolder
from gspo_lab.tasks.base import Problem, Task

Asked = tuple[str, int, str, int, int | None, str | None, str | None]
"""bench, step, problem, sample, sample_seed, prompt, reference."""


Made = tuple[dict[str, tuple[str, Task]], dict[str, Sequence[Problem]]]
"""By benchmark its task with its name, and the problems that are asked."""


class SpotCheck(NamedTuple):
    """How many answers were graded again; by a name and in words what is not as recorded; why the rest was not."""

    graded: int
    odd: tuple[tuple[str, str], ...]
    left: tuple[str, ...]


def spot_check(
    folder: RunFolder,
    stored: Sequence[Stored],
    asked: Sequence[Asked],
    most: int,
    chance: random.Random,
    made: dict[str, Made],
    *,
    unsafe: bool = False,
) -> SpotCheck:
    """Grade at most `most` answers of a run's own evaluations again, drawn by `chance`, and hold each question against
    its task. An answer by another version of the grader, or of a task that cannot be made here, is left.

    `made` keeps tasks and problems for the next run.
    """
    try:
        run = folder.run()
        same_tasks = repr((run.base, run.settings.task, run.settings.bench))
        if same_tasks not in made:
            tasks = tasks_of(folder, "", unsafe=unsafe)
            held_out = {one.name: tasks[one.name][1].problems("held-out")[: one.problems] for one in run.settings.bench}
            made[same_tasks] = tasks, held_out
        tasks, held_out = made[same_tasks]
    except LabError as error:
        return SpotCheck(0, (), (str(error),))
    odd, left = [], []
    for bench in run.settings.bench:
        problems = held_out[bench.name]
        own = [row for row in asked if row[0] == bench.name]
        by_step = _by_step(own)
        samples = {step: bench.samples_at(step, run.settings.steps) for step in by_step}
        due = {
            q.key: (q.seed, q.problem.prompt, q.problem.reference)
            for q in questions(bench.name, problems, max(samples.values(), default=0), run.seed)
        }
        for step, keys in by_step.items():
            if keys != {key for key in due if key[1] < samples[step]}:
                odd.append((f"{bench.name}, step {step}", f"{bench.name} after step {step} asked other problems"))
        other = next((row for row in own if row[2:4] in due and row[4:] != due[row[2:4]]), None)
        if other is not None:
            told = f"{bench.name} after step {other[1]}: {other[2]} #{other[3]} has another seed, prompt or reference"
            odd.append((f"{bench.name}, {other[2]}", told))
    known = {bench: task.grader for bench, (_, task) in tasks.items()}
    same = [one for one in stored if known.get(one.bench) == one.grader]
    if others := {f"{one.bench} by {one.grader}" for one in stored if known.get(one.bench) != one.grader}:
        left.append(f"graded by what is not here: {', '.join(sorted(others))}")
    drawn = same if len(same) <= most else chance.sample(same, most)
    for benchmark, (name, task) in tasks.items():
        for again in regrade([one for one in drawn if one.bench == benchmark], name, task, lambda _: None):
            one, grade = again.stored, again.grade
            if grade is not None and grade.error is not None and one.error is None:
                left.append(f"{benchmark}: the grader failed here: {grade.error}")
            elif grade is None or (grade.correct, grade.reward) != (one.correct, one.reward):
                is_now = "no problem of the task" if grade is None else f"correct = {grade.correct}"
                told = (
                    f"{benchmark} after step {one.step}, {one.problem} #{one.sample}: stored as correct = {one.correct}"
                )
                odd.append((f"{benchmark}, {one.problem}", f"{told}, graded again it is {is_now}"))
    return SpotCheck(len(drawn), tuple(odd), tuple(dict.fromkeys(left)))


def _by_step(asked: Iterable[Asked]) -> dict[int, set[tuple[str, int]]]:
    out: dict[int, set[tuple[str, int]]] = {}
    for _, step, problem, sample, *_ in asked:
        out.setdefault(step, set()).add((problem, sample))
    return out
