"""Stored answers, graded again by today's graders. What they were given first stays; what is new goes to a journal.

<folder of the answers>/grades/journal.jsonl    GradeRecords, the last one of an answer in force
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gspo_lab.errors import LabError
from gspo_lab.evaluation.ask import NOT_ASKED, turns_told
from gspo_lab.evaluation.session import grading_threads
from gspo_lab.evaluation.subjects import run_chats
from gspo_lab.models.wording import worded
from gspo_lab.records import GradeRecord
from gspo_lab.runfolder import RunFolder
from gspo_lab.tasks import build_task, grade_answer, without_sandbox
from gspo_lab.tasks.base import Task


@dataclass(frozen=True, slots=True)
class Stored:
    """An answer as it lies in the database, with the grade in force."""

    bench: str
    step: int
    problem: str
    sample: int
    text: str | None
    truncated: int | None
    extracted: str | None
    reward: float | None
    correct: int | None
    reason: str | None
    error: str | None
    grader: str | None
    isolation: str | None
    turns: str | None = None
    """As JSON, of a task of several."""


GRADE = ("extracted", "reward", "correct", "reason", "error", "grader", "isolation")


@dataclass(frozen=True, slots=True)
class Regraded:
    """An answer and its grade of today; None where its task has no such problem any more."""

    stored: Stored
    grade: GradeRecord | None

    @property
    def turned(self) -> bool:
        """Whether it is right now and was not, or the other way round; a grader's failure is a third verdict."""
        return self.grade is not None and self.grade.correct != self.stored.correct

    @property
    def differs(self) -> bool:
        """Whether anything of the grade is another."""
        return self.grade is not None and any(getattr(self.grade, n) != getattr(self.stored, n) for n in GRADE)


def tasks_of(folder: RunFolder, evaluation: str, *, unsafe: bool = False) -> dict[str, tuple[str, Task]]:
    """Bench -> (name, task) of what a run asked itself (`evaluation` ""), or of a later evaluation by its declaration.

    `unsafe` gives leave to run programs without isolation. LabError where the evaluation was never declared: answers
    of an older gspo-lab.
    """

    def build(name: str, options: Mapping[str, Any], base: Path, enough: int | None = None) -> tuple[str, Task]:
        return name, build_task(name, without_sandbox(name, options) if unsafe else options, base, enough=enough)

    if evaluation:
        declared = folder.evaluation(evaluation).declaration()
        if declared is None:
            raise LabError(f"{folder.path}: the evaluation {evaluation} was never declared, so nobody knows its task")
        table = declared["task"]
        asked = len(declared["asked"]["problems"])
        return {declared["bench"]: build(table["name"], table["options"], Path(table["base"]), asked)}
    run = folder.run()
    chat, base = run_chats(folder), Path(run.base)
    tables = {bench.name: bench.task or run.settings.task for bench in run.settings.bench}
    return {bench: build(one.name, worded(one.name, one.options, chat=chat), base) for bench, one in tables.items()}


def regrade(answers: Sequence[Stored], task_name: str, task: Task, progress: Callable[[int], None]) -> list[Regraded]:
    """Grade answers to one benchmark again, in their order."""
    wanted, problems = {stored.problem for stored in answers}, {}
    for problem in task.problems("held-out") if wanted else ():  # made one by one, and those asked for come first
        if problem.id in wanted:
            problems[problem.id] = problem
            if len(problems) == len(wanted):
                break

    def again(stored: Stored) -> Regraded:
        problem = problems.get(stored.problem)
        if problem is None:
            return Regraded(stored, None)
        if (stored.reason or "").startswith(NOT_ASKED):
            return Regraded(stored, _record(stored, {name: getattr(stored, name) for name in GRADE}))
        turns = None if stored.turns is None else turns_told(json.loads(stored.turns))
        grade = grade_answer(task, problem, stored.text or "", truncated=bool(stored.truncated), turns=turns)
        given = {name: getattr(grade, name) for name in GRADE if name not in ("correct", "grader")}
        correct = None if grade.correct is None else int(grade.correct)
        return Regraded(stored, _record(stored, {**given, "correct": correct, "grader": task.grader}))

    def counted(stored: Stored) -> Regraded:
        regraded = again(stored)
        progress(1)
        return regraded

    with ThreadPoolExecutor(grading_threads(task_name)) as pool:
        return list(pool.map(counted, answers))


def _record(stored: Stored, grade: Mapping[str, Any]) -> GradeRecord:
    key: dict[str, Any] = {name: getattr(stored, name) for name in ("bench", "step", "problem", "sample")}
    return GradeRecord(**key, **grade, at=time.time())


def apply(folder: RunFolder, run: str, evaluation: str, regraded: Iterable[Regraded]) -> int:
    """Write the grades that changed to the journal beside the answers of `run`, a run's or a subject's id; how many."""
    place = (folder.evaluation(evaluation) if evaluation else folder).grades
    grades: list[Any] = [one.grade for one in regraded if one.differs]
    if grades:
        with place.held(f"another gspo-lab is grading in {place.path}"), place.append_for(run) as sink:
            sink.write(grades)
    return len(grades)
