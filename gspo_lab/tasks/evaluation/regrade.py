"""Grade stored answers again with the current graders. The first grades stay; new ones go to a
journal.

<folder of the answers>/grades/journal.jsonl    GradeRecords, the last one of an answer in force
"""

import json
import random
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping, JsonObject, Strings
from gspo_lab.recording.records import GradeRecord, StoredAnswer
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.study import BenchTable, Run
from gspo_lab.tasks import build_task, grade_answer, without_sandbox
from gspo_lab.tasks.base import Problems, Task
from gspo_lab.tasks.evaluation.evaluated_models import run_chats
from gspo_lab.tasks.evaluation.evaluation_run import grading_threads
from gspo_lab.tasks.evaluation.run_benchmark import NOT_ASKED, questions, turns_from_json
from gspo_lab.training.models.wording import worded

GRADE = ("extracted", "reward", "correct", "reason", "error", "grader", "isolation")


@dataclass(frozen=True, slots=True)
class Regraded:
    """An answer and its new grade; None if the task no longer has the problem."""

    stored: StoredAnswer
    grade: GradeRecord | None

    @property
    def turned(self) -> bool:
        """Whether `correct` changed; a grader's failure is a third value."""
        return self.grade is not None and self.grade.correct != self.stored.correct

    @property
    def differs(self) -> bool:
        """Whether any field of the grade changed."""
        return self.grade is not None and any(
            getattr(self.grade, n) != getattr(self.stored, n) for n in GRADE
        )


def tasks_of(
    folder: RunFolder, evaluation: str, *, unsafe: bool = False
) -> dict[str, tuple[str, Task]]:
    """Bench -> (name, task) of a run's evaluations (`evaluation` ""), or of a later evaluation by
    its declaration.

    `unsafe` allows programs without isolation. LabError if the evaluation has no declaration.
    """

    def build(
        name: str, options: JsonMapping, base: Path, enough: int | None = None
    ) -> tuple[str, Task]:
        return name, build_task(
            name, without_sandbox(name, options) if unsafe else options, base, enough=enough
        )

    if evaluation:
        declared = folder.evaluation(evaluation).declaration()
        if declared is None:
            raise LabError(
                f"{folder.path}: the evaluation {evaluation} was never declared, so its task is"
                " unknown"
            )
        table = declared["task"]
        count = len(declared["asked"]["problems"])
        return {
            declared["bench"]: build(table["name"], table["options"], Path(table["base"]), count)
        }
    run = folder.run()
    chat = run_chats(folder)
    base = Path(run.base)
    tables = {bench.name: bench.task or run.settings.task for bench in run.settings.bench}
    return {
        bench: build(table.name, worded(table.name, table.options, chat=chat), base)
        for bench, table in tables.items()
    }


def regrade(
    answers: Sequence[StoredAnswer], task_name: str, task: Task, progress: Callable[[int], None]
) -> list[Regraded]:
    """Grade answers to one benchmark again, in their order."""
    ids = {stored.problem for stored in answers}
    problems = {}
    for problem in (
        task.problems("held-out") if ids else ()
    ):  # a generated task makes them one by one
        if problem.id in ids:
            problems[problem.id] = problem
            if len(problems) == len(ids):
                break

    def regraded(stored: StoredAnswer) -> Regraded:
        problem = problems.get(stored.problem)
        if problem is None:
            values = None
        elif (stored.reason or "").startswith(NOT_ASKED):
            values = {name: getattr(stored, name) for name in GRADE}
        else:
            turns = None if stored.turns is None else turns_from_json(json.loads(stored.turns))
            grade = grade_answer(
                task, problem, stored.text or "", truncated=bool(stored.truncated), turns=turns
            )
            values = {name: getattr(grade, name) for name in GRADE if name != "grader"} | {
                "grader": task.grader
            }
            values["correct"] = None if grade.correct is None else int(grade.correct)
        progress(1)
        key: JsonObject = {
            name: getattr(stored, name) for name in ("bench", "step", "problem", "sample")
        }
        return Regraded(
            stored, None if values is None else GradeRecord(**key, **values, at=time.time())
        )

    with ThreadPoolExecutor(grading_threads(task_name)) as pool:
        return list(pool.map(regraded, answers))


def apply_grades(folder: RunFolder, run: str, evaluation: str, regraded: Iterable[Regraded]) -> int:
    """Write changed grades to the journal beside the answers of `run` (a run or model id).

    Returns their number.
    """
    place = (folder.evaluation(evaluation) if evaluation else folder).grades
    grades: list[Any] = [answer.grade for answer in regraded if answer.differs]
    if grades:
        with (
            place.exclusive_lock(f"another gspo-lab is grading in {place.path}"),
            place.append_for(run) as sink,
        ):
            sink.write(grades)
    return len(grades)


StoredQuestion = tuple[str, int, str, int, int | None, str | None, str | None]
"""bench, step, problem, sample, sample_seed, prompt, reference."""

Made = tuple[dict[str, tuple[str, Task]], dict[str, Problems]]
"""Per benchmark its task with its name, and its problems."""


class SpotCheck(NamedTuple):
    """The number of regraded answers; faults as (name, sentence); why others were skipped."""

    graded: int
    odd: tuple[tuple[str, str], ...]
    left: Strings


def _questions_changed(
    run: Run, bench: BenchTable, problems: Problems, rows: Sequence[StoredQuestion]
) -> list[tuple[str, str]]:
    """Where the recorded questions of a benchmark are not those of the task: place and sentence."""
    odd = []
    by_step: dict[int, set[tuple[str, int]]] = {}
    for _, step, problem, sample, *_ in rows:
        by_step.setdefault(step, set()).add((problem, sample))
    samples = {step: bench.samples_at(step, run.settings.steps) for step in by_step}
    due = {
        q.key: (q.seed, q.problem.prompt, q.problem.reference)
        for q in questions(bench.name, problems, max(samples.values(), default=0), run.seed)
    }
    for step, keys in by_step.items():
        if keys != {key for key in due if key[1] < samples[step]}:
            odd.append(
                (
                    f"{bench.name}, step {step}",
                    f"{bench.name} after step {step} asked other problems",
                )
            )
    unlike = next((row for row in rows if row[2:4] in due and row[4:] != due[row[2:4]]), None)
    if unlike is not None:
        words = (
            f"{bench.name} after step {unlike[1]}: {unlike[2]} #{unlike[3]} has another seed,"
            " prompt or reference"
        )
        odd.append((f"{bench.name}, {unlike[2]}", words))
    return odd


def spot_check(
    folder: RunFolder,
    stored: Sequence[StoredAnswer],
    recorded: Sequence[StoredQuestion],
    most: int,
    chance: random.Random,
    made: dict[str, Made],
    *,
    unsafe: bool = False,
) -> SpotCheck:
    """Regrade at most `most` answers of a run's evaluations, drawn by `chance`, and compare
    questions with the task.

    Skips answers of another version of the grader, or of a task that cannot be built here. `made`
    caches tasks and problems for the next run.
    """
    try:
        run = folder.run()
        same_tasks = repr((run.base, run.settings.task, run.settings.bench))
        if same_tasks not in made:
            tasks = tasks_of(folder, "", unsafe=unsafe)
            held_out = {
                bench.name: tasks[bench.name][1].problems("held-out")[: bench.problems]
                for bench in run.settings.bench
            }
            made[same_tasks] = tasks, held_out
        tasks, held_out = made[same_tasks]
    except LabError as error:
        return SpotCheck(0, (), (str(error),))
    odd = []
    left = []
    for bench in run.settings.bench:
        rows = [row for row in recorded if row[0] == bench.name]
        odd += _questions_changed(run, bench, held_out[bench.name], rows)
    graders = {bench: task.grader for bench, (_, task) in tasks.items()}
    same = [answer for answer in stored if graders.get(answer.bench) == answer.grader]
    graded_later = {(grade["bench"], grade["grader"]) for grade in folder.grades.records("grade")}
    odd += [
        (f"{bench}, {grader}", f"{bench} was graded later by {grader}, which is not here")
        for bench, grader in sorted(graded_later)
        if graders.get(bench) != grader
    ]
    foreign = {
        f"{row.bench} by {row.grader}"
        for row in stored
        if graders.get(row.bench) != row.grader and (row.bench, row.grader) not in graded_later
    }
    if foreign:
        left.append(f"graded by what is not here: {', '.join(sorted(foreign))}")
    drawn = same if len(same) <= most else chance.sample(same, most)
    for benchmark, (name, task) in tasks.items():
        for regraded in regrade(
            [answer for answer in drawn if answer.bench == benchmark], name, task, lambda _: None
        ):
            answer = regraded.stored
            grade = regraded.grade
            if grade is not None and grade.error is not None and answer.error is None:
                left.append(f"{benchmark}: the grader failed here: {grade.error}")
            elif grade is None or (grade.correct, grade.reward) != (answer.correct, answer.reward):
                is_now = "no problem of the task" if grade is None else f"correct = {grade.correct}"
                where = f"{benchmark} after step {answer.step}, {answer.problem} #{answer.sample}"
                words = f"{where}: stored as correct = {answer.correct}"
                odd.append(
                    (f"{benchmark}, {answer.problem}", f"{words}, graded again it is {is_now}")
                )
    return SpotCheck(len(drawn), tuple(odd), tuple(dict.fromkeys(left)))
