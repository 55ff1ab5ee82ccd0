"""One evaluation of one model: declared before its first answer, stored answer by answer, and
resumable.

    <model's folder>/evaluations/<name>/
        evaluation.json   the declaration: model, benchmark, settings
        journal.jsonl     the answers, each as soon as it is graded
        lock              held by the process that samples

Threads grade answers while others are sampled. An interruption loses at most the answers of the
current batch; the same command samples only the missing ones.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from gspo_lab import __version__
from gspo_lab.common.cpu_count import cores
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonMapping, JsonObject, Strings
from gspo_lab.recording.journal import Journal, from_dict
from gspo_lab.recording.records import AnswerRecord
from gspo_lab.recording.runfolder import EvaluationFolder, SubjectFolder, same_run
from gspo_lab.tasks.evaluation.benchmark_spec import DATA, Bench
from gspo_lab.tasks.evaluation.run_benchmark import ModelAnswer, Question, graded_record, questions

FIXED = ("asked", "subject", "seed", "lab_version")
"""Entries of a declaration that must be unchanged when answers are added."""

AT_ONE_WRITE = 16
"""Most answers that are graded and written together."""

Answered = Sequence[tuple[Question, ModelAnswer]]


class ModelClient(Protocol):
    """A model in this process or behind a server."""

    def ready(self, bench: Bench) -> JsonMapping:
        """Prepare the model. Returns its context and token limits for the declaration."""
        ...

    def answer(
        self, bench: Bench, pending: Sequence[Question], hand_over: Callable[[Answered], None]
    ) -> list[str]:
        """Answer questions in any order and hand over each answer.

        Returns one line per kind of failure.
        """
        ...


@dataclass(frozen=True)
class EvaluatedModel:
    """A model to evaluate: `id` as in the database; `content` identifies it.

    The two checkpoints of a run share folder and content, and differ by `step`.
    """

    id: str
    folder: SubjectFolder
    seed: int
    step: int
    content: JsonMapping
    client: ModelClient
    weights: str | None = None
    """Identifies its weights, if models of one study may share them."""


@dataclass(frozen=True)
class EvaluationResult:
    """The numbers of new and of missing answers, and the reasons of failures."""

    new: int
    missing: int
    reasons: Strings = ()


def evaluate_subject(
    subject: EvaluatedModel,
    bench: Bench,
    progress: Callable[[int], None],
    twin: EvaluatedModel | None = None,
) -> EvaluationResult:
    """Sample, grade and store the missing answers of `subject`; `progress` gets the number of new
    answers.

    Answers of a `twin` with equal weights and seed are copied, because they would be identical.
    LabError if the folder holds another evaluation, or another process is evaluating.
    """
    folder = subject.folder.evaluation(bench.evaluation)
    base = bench.base.resolve()
    options = {
        key: os.path.relpath(value, base)
        if isinstance(value, str) and Path(value).is_absolute()
        else value
        for key, value in bench.options.items()
    }
    declaration = {
        "evaluation": bench.evaluation,
        "bench": bench.name,
        "task": {"name": bench.task_name, "options": options, "base": str(base)},
        "asked": bench.protocol,
        "subject": dict(subject.content),
        "seed": subject.seed,
        "lab_version": __version__,
        "data": options.get(DATA),
        "declared_at": time.time(),
    }
    recorded_id = folder.recorded_for()
    if recorded_id is not None and not same_run(recorded_id, subject.id):
        raise LabError(
            f"{folder.journal} was recorded for {recorded_id}, not for {subject.id}: put it back"
            f" there, or move its folder {folder.path} away to ask again"
        )
    declared = _declared(folder, declaration)
    missing = unanswered(subject, bench)
    progress(len(bench.problems) * bench.samples - len(missing))
    if not missing:
        return EvaluationResult(0, 0)
    limits = subject.client.ready(bench)
    with folder.exclusive_lock(f"another gspo-lab is asking in {folder.path}"):
        if declared is None and _declared(folder, declaration) is None:
            if subject.content["kind"] != "run":
                subject.folder.describe(dict(subject.content))
            folder.declare({**declaration, "limits": dict(limits)})
        if twin is not None:
            stored = _answers(folder, subject.step)
            source = twin.folder.evaluation(bench.evaluation)
            lines = _answers(source, twin.step)
            copied = [
                from_dict({**line, "step": subject.step})
                for key, line in lines.items()
                if key not in stored
            ]
            with folder.append_for(subject.id) as sink:
                sink.write(copied)
            progress(len(copied))
        missing = unanswered(subject, bench)
        with (
            folder.append_for(subject.id) as sink,
            Grading(bench, subject.step, sink, progress) as grading,
        ):
            reasons = subject.client.answer(bench, missing, grading.take)
    return EvaluationResult(grading.graded, len(missing) - grading.graded, tuple(reasons))


def unanswered(subject: EvaluatedModel, bench: Bench) -> list[Question]:
    """The questions that `subject` has not answered."""
    stored = _answers(subject.folder.evaluation(bench.evaluation), subject.step)
    all_questions = questions(bench.name, bench.problems, bench.samples, subject.seed)
    return [question for question in all_questions if question.key not in stored]


def _declared(folder: EvaluationFolder, declaration: JsonMapping) -> Any:
    """The stored declaration, or None. LabError if it is of another evaluation."""
    stored = folder.declaration()
    if stored is None:
        return None
    if differing := [key for key in FIXED if stored.get(key) != declaration[key]]:
        changes = ", ".join(
            f"{key} ({_short(stored.get(key))}, now {_short(declaration[key])})"
            for key in differing
        )
        raise LabError(
            f"{folder.path} holds answers to another evaluation, which differs in {changes}; move"
            " it away to ask anew"
        )
    return stored


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _answers(folder: EvaluationFolder, step: int) -> dict[tuple[str, int], JsonObject]:
    """The stored answers of an evaluation at a step, by (problem, sample)."""
    lines = folder.records(AnswerRecord.kind)
    return {(line["problem"], line["sample"]): line for line in lines if line.get("step") == step}


def grading_threads(task_name: str) -> int:
    """The number of grading threads: 1 for a user's grader, which may not be thread-safe."""
    return 1 if ":" in task_name else cores()


class Grading:
    """Grades answers in threads and stores them; its exit waits until all are graded."""

    def __init__(
        self, bench: Bench, step: int, sink: Journal, progress: Callable[[int], None]
    ) -> None:
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
        """Queue answers for grading. Raises the error of an earlier answer, if any."""
        if self._error is not None:
            raise self._error
        for start in range(0, len(answered), AT_ONE_WRITE):
            self._pool.submit(self._grade, answered[start : start + AT_ONE_WRITE])

    def _grade(self, answered: Answered) -> None:
        try:
            name = self._bench.name
            step = self._step
            records = [
                graded_record(self._bench.task, q, answer, bench=name, step=step)
                for q, answer in answered
            ]
            with self._lock:
                self._sink.write(records)
                self.graded += len(records)
                self._progress(len(records))
        except BaseException as error:
            self._error = error
            raise
