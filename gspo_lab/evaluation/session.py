"""One evaluation of one subject: declared before its first answer, kept answer by answer, finished by who comes next.

    <subject's folder>/evaluations/<name>/evaluation.json   what is asked of whom and how
                                          journal.jsonl     the answers, each as soon as it is graded
                                          lock              held by whoever asks

Answers are graded in threads while others are still being asked for. A kill loses at most the answers that were under
way; the same command asks for those again, and for no other.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, Self

from gspo_lab import __version__
from gspo_lab.cpu_count import cores
from gspo_lab.errors import LabError
from gspo_lab.evaluation.ask import Answer, Question, graded_record, questions
from gspo_lab.evaluation.bench import DATA, Bench
from gspo_lab.journal import Journal
from gspo_lab.records import AnswerRecord, from_dict
from gspo_lab.runfolder import EvaluationFolder, SubjectFolder, same_run

FIXED = ("asked", "subject", "seed", "lab_version")
"""The entries of a declaration that must be what they were for answers to be added."""

AT_ONE_WRITE = 16
"""Answers that are graded and written to the disk together, at most."""

Answered = Sequence[tuple[Question, Answer]]


class Respondent(Protocol):
    """What answers: a model in this process, or one behind a server."""

    def ready(self, bench: Bench) -> Mapping[str, Any]:
        """Get ready to be asked; the model's context and the token limits that follow from it, for the declaration."""
        ...

    def answer(self, bench: Bench, wanted: Sequence[Question], hand_over: Callable[[Answered], None]) -> list[str]:
        """Answer the questions in any order, each handed over as soon as it can be; a line per kind of failure."""
        ...


@dataclass(frozen=True)
class Subject:
    """Who is asked: `id` as in the database, `content` what it is.

    The two checkpoints of a run are two subjects with one folder and one content, told apart by `step`.
    """

    id: str
    folder: SubjectFolder
    seed: int
    step: int
    content: Mapping[str, Any]
    respondent: Respondent
    weights: str | None = None
    """What tells its weights from others, where subjects of the same study may share them."""


@dataclass(frozen=True)
class Asked:
    """How asking ended: new answers, those still missing, and why, or what must be known of those that are there."""

    new: int
    missing: int
    reasons: tuple[str, ...] = ()


def evaluate_subject(
    subject: Subject, bench: Bench, progress: Callable[[int], None], twin: Subject | None = None
) -> Asked:
    """Ask `subject` whatever it has not answered yet and keep the answers; `progress` is told how many there are more.

    What a `twin` of the same weights and seed has answered is taken over: it would be said again word for word.
    LabError where an evaluation of that name was declared to be another one, or somebody else is at it.
    """
    folder = subject.folder.evaluation(bench.evaluation)
    declaration = {
        "evaluation": bench.evaluation,
        "bench": bench.name,
        "task": {"name": bench.task_name, "options": dict(bench.options), "base": str(bench.base.resolve())},
        "asked": bench.asked,
        "subject": dict(subject.content),
        "seed": subject.seed,
        "lab_version": __version__,
        "data": bench.options.get(DATA),
        "declared_at": time.time(),
    }
    named = folder.recorded_for()
    if named is not None and not same_run(named, subject.id):
        raise LabError(
            f"{folder.journal} was recorded for {named}, not for {subject.id}: put it back there, or move its folder "
            f"{folder.path} away to ask again"
        )
    declared = _declared(folder, declaration)
    missing = unanswered(subject, bench)
    progress(len(bench.problems) * bench.samples - len(missing))
    if not missing:
        return Asked(0, 0)
    limits = subject.respondent.ready(bench)
    with folder.held(f"another gspo-lab is asking in {folder.path}"):
        if declared is None and _declared(folder, declaration) is None:
            if subject.content["kind"] != "run":
                subject.folder.describe(dict(subject.content))
            folder.declare({**declaration, "limits": dict(limits)})
        if twin is not None:
            _take_over(folder, subject, twin.folder.evaluation(bench.evaluation), twin.step, progress)
        missing = unanswered(subject, bench)
        with folder.append_for(subject.id) as sink, Grading(bench, subject.step, sink, progress) as grading:
            reasons = subject.respondent.answer(bench, missing, grading.take)
    return Asked(grading.graded, len(missing) - grading.graded, tuple(reasons))


def unanswered(subject: Subject, bench: Bench) -> list[Question]:
    """What `subject` has not answered yet."""
    there = _answers(subject.folder.evaluation(bench.evaluation), subject.step)
    every = questions(bench.name, bench.problems, bench.samples, subject.seed)
    return [question for question in every if question.key not in there]


def _take_over(
    folder: EvaluationFolder,
    subject: Subject,
    source: EvaluationFolder,
    other_step: int,
    progress: Callable[[int], None],
) -> None:
    """Copy the answers of another evaluation at a step that are not here yet."""
    step = subject.step
    there = _answers(folder, step)
    lines = _answers(source, other_step)
    copied = [from_dict({**line, "step": step}) for key, line in lines.items() if key not in there]
    with folder.append_for(subject.id) as sink:
        sink.write(copied)
    progress(len(copied))


def _declared(folder: EvaluationFolder, declaration: Mapping[str, Any]) -> Any:
    """The declaration that lies there, or None; LabError where it is of another evaluation."""
    there = folder.declaration()
    if there is None:
        return None
    if differing := [key for key in FIXED if there.get(key) != declaration[key]]:
        what = ", ".join(f"{key} ({_short(there.get(key))}, now {_short(declaration[key])})" for key in differing)
        raise LabError(
            f"{folder.path} holds answers to another evaluation, which differs in {what}; move it away to ask anew"
        )
    return there


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _answers(folder: EvaluationFolder, step: int) -> dict[tuple[str, int], dict[str, Any]]:
    """The answers at a step that lie in an evaluation's folder, by (problem, sample)."""
    return {
        (line["problem"], line["sample"]): line
        for line in folder.records(AnswerRecord.kind)
        if line.get("step") == step
    }


def grading_threads(task_name: str) -> int:
    """How many answers may be graded at once: a grader of the user's own need not stand several threads."""
    return 1 if ":" in task_name else cores()


class Grading:
    """Grades what is handed over, in threads, and writes it down; leaving it waits until all is graded."""

    def __init__(self, bench: Bench, step: int, sink: Journal, progress: Callable[[int], None]) -> None:
        self.graded = 0
        self._bench = bench
        self._step = step
        self._sink = sink
        self._progress = progress
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(grading_threads(bench.task_name), "grading")
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(wait=True)
        if error[1] is None and self._error is not None:
            raise self._error

    def take(self, answered: Answered) -> None:
        """Have answers graded and kept. Raises what an earlier one failed with: asking on would be in vain."""
        if self._error is not None:
            raise self._error
        for start in range(0, len(answered), AT_ONE_WRITE):
            self._pool.submit(self._grade, answered[start : start + AT_ONE_WRITE])

    def _grade(self, answered: Answered) -> None:
        try:
            name, step = self._bench.name, self._step
            records = [graded_record(self._bench.task, q, answer, bench=name, step=step) for q, answer in answered]
            with self._lock:
                self._sink.write(records)
                self.graded += len(records)
                self._progress(len(records))
        except BaseException as error:
            self._error = error
            raise
