"""A run is a folder and a command: the files of that folder, each under one name, and the run's
progress.

    WorkFolder              a worker's folder: its lock, its log
      StartFolder           a warm start to make
      JournalFolder         records, and later grades of their answers
        EvaluationFolder    a later evaluation
        SubjectFolder       a model or a server that can be evaluated
          RunFolder         a run, whose checkpoints can be evaluated

Files are read on demand and never cached, because a folder changes while it is read.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gspo_lab.common import paths
from gspo_lab.common.atomic_files import (
    exclusive_lock,
    lock_holder,
    read_entry,
    read_json,
    write_json,
)
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import JsonObject, OptionalText, Strings
from gspo_lab.common.states import LAST_WORDS, STARTED, Phase, State
from gspo_lab.recording.journal import Journal, JournalReader, from_end, in_force, scan
from gspo_lab.recording.records import RunStatus, StepRecord

if TYPE_CHECKING:  # who only looks where runs stand needs no settings, and no pydantic
    from gspo_lab.study import Run


def _relative(content: JsonObject, folder: Path, *keys: str) -> JsonObject:
    """The content with the paths under `keys` relative to `folder`: a shared record names no
    folders of a machine.
    """
    absolute = folder.resolve()
    return content | {
        key: os.path.relpath(content[key], absolute) for key in keys if content.get(key)
    }


def _with_absolute_paths(content: JsonObject, folder: Path, *keys: str) -> JsonObject:
    """The content with absolute paths under `keys`."""
    return content | {
        key: str((folder / content[key]).resolve()) for key in keys if content.get(key)
    }


def _folders(content: JsonObject) -> Strings:
    """The keys of run.json that name a folder; an imported run has none."""
    return () if content.get("origin") else ("base", "warm_start")


@dataclass(frozen=True)
class WorkFolder:
    """A folder on which a worker is started."""

    path: Path

    @property
    def log(self) -> Path:
        """The worker's output."""
        return self.path / paths.LOG

    @property
    def launches(self) -> Path:
        """The records of launches on other hosts (`launch.remote_workers`)."""
        return self.path / paths.LAUNCHES

    def lock_holder(self) -> OptionalText:
        """The process that works in the folder, in words; None for a free folder."""
        return lock_holder(self.path / paths.LOCK)

    def exclusive_lock(self, refusal: str) -> AbstractContextManager[None]:
        """Lock the folder for this process. InUse(refusal) if another process works in it."""
        return exclusive_lock(self.path / paths.LOCK, refusal)


class StartFolder(WorkFolder):
    """A warm start: its request, its progress, and the folder of the finished model."""

    @property
    def has_request(self) -> bool:
        """Whether the folder holds a request."""
        return (self.path / paths.WARM_START).is_file()

    def request(self) -> JsonObject:
        """The request: model, task, settings, seed, base and cache."""
        return _with_absolute_paths(
            read_json(self.path / paths.WARM_START) or {}, self.path, "base", "cache"
        )

    def write_request(self, request: JsonObject) -> None:
        """Write the request. Several studies may write the same one at once."""
        write_json(
            self.path / paths.WARM_START,
            _relative(request, self.path, "base", "cache"),
            shared=True,
        )

    def steps_done(self) -> int:
        """The finished steps by its worker."""
        return read_entry(self.path / paths.PROGRESS, "step", int) or 0

    def write_progress(self, step: int, steps: int) -> None:
        """Write the progress: `step` of `steps`."""
        write_json(self.path / paths.PROGRESS, {"step": step, "steps": steps})

    def model_folder(self) -> Path | None:
        """The model's folder, if it is finished and still exists."""
        model = read_entry(self.path / paths.MADE, "path", str)
        folder = None if model is None else (self.path / model).resolve()
        return folder if folder is not None and folder.exists() else None

    def finish(self, model: Path) -> None:
        """Write the folder of the finished model."""
        write_json(
            self.path / paths.MADE, _relative({"path": str(model.resolve())}, self.path, "path")
        )


class JournalFolder(WorkFolder):
    """A folder with a journal."""

    @property
    def journal(self) -> Path:
        """The file of its records."""
        return self.path / paths.JOURNAL

    def append(self) -> Journal:
        """The journal, for the process that holds the folder's lock."""
        return Journal(self.path)

    @contextmanager
    def append_for(self, run: str) -> Iterator[Journal]:
        """A journal for answers or grades of a run or a subject, which its first line names."""
        with self.append() as journal:
            if not journal.has_records:
                journal.write([RunStatus(state=STARTED, step=0, run=run)])
            yield journal

    def recorded_for(self) -> OptionalText:
        """The run or subject that the first line names; None where that line is damaged."""
        record = next(iter(JournalReader(self.journal)), {})
        return record.get("run") if record.get("kind") == RunStatus.kind else None

    def records(self, *kinds: str) -> list[JsonObject]:
        """The records in force, of some kinds or of all, in their order."""
        records = in_force(scan(self.journal).items)
        return [record for record in records if not kinds or record.get("kind") in kinds]

    @property
    def grades(self) -> "JournalFolder":
        """Later grades of its answers."""
        return JournalFolder(self.path / paths.GRADES)


class EvaluationFolder(JournalFolder):
    """A later evaluation: its declaration and the answers."""

    def declaration(self) -> JsonObject | None:
        """Model, problems and protocol of the evaluation; None before it begins."""
        content = read_json(self.path / paths.EVALUATION)
        return content and content | {
            "task": _with_absolute_paths(content.get("task") or {}, self.path, "base")
        }

    def declare(self, content: JsonObject) -> None:
        """Write model, problems and protocol."""
        task = _relative(content["task"], self.path, "base")
        write_json(self.path / paths.EVALUATION, content | {"task": task})


class SubjectFolder(JournalFolder):
    """A folder of evaluations, with the description of a model or a server."""

    def evaluation(self, name: str) -> EvaluationFolder:
        """The folder of a later evaluation by its name, which may not exist."""
        return EvaluationFolder(self.path / paths.EVALUATIONS / name)

    def describe(self, content: JsonObject) -> None:
        """Write the description of a model or a server."""
        write_json(self.path / paths.SUBJECT, content)


class RunProgress(NamedTuple):
    """A run's state by its folder alone, with its complete steps, and why it failed."""

    state: State
    steps: int
    message: OptionalText = None

    @property
    def finished(self) -> bool:
        """Whether the run is finished."""
        return self.state is State.FINISHED


class RunFolder(SubjectFolder):
    """A run: its specification, its progress and its checkpoints."""

    @property
    def is_declared(self) -> bool:
        """Whether the folder holds a run.json."""
        return (self.path / paths.RUN).is_file()

    def specification(self) -> JsonObject | None:
        """The content of run.json; None without it."""
        return read_json(self.path / paths.RUN)

    def specify(self, content: JsonObject, *, imported: bool = False) -> None:
        """Write run.json if it differs, with relative paths. LabError where another program
        recorded the run, unless this is its import again."""
        present = self.specification()
        content = _relative(content, self.path, *_folders(content))
        if present == content:
            return
        if present is not None and present.get("origin") is not None and not imported:
            raise LabError(
                f"{self.path} was recorded by another program, and cannot be gone on with: use"
                " --name NEW"
            )
        write_json(self.path / paths.RUN, content)

    def run(self) -> "Run":
        """The run's specification. LabError where run.json is missing or damaged."""
        from gspo_lab.study import Run

        remedy = "restore it from a copy, or move its folder away and call gspo-lab records rebuild"
        data = self.specification()
        if data is None:
            raise LabError(f"{self.path / paths.RUN} is missing: {remedy}")
        try:
            return Run.from_json(_with_absolute_paths(data, self.path, *_folders(data)))
        except (
            AttributeError,
            KeyError,
            OverflowError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            reason = str(error).partition("\n")[0]
            why = f"{type(error).__name__}: {reason}"
            raise LabError(f"{self.path / paths.RUN} is damaged ({why}): {remedy}") from error

    def status(self) -> RunProgress:
        """The run's progress, from the end of its journal: its last status, or else its last
        step.
        """
        for back, record in enumerate(entry for entry in from_end(self.journal) if "kind" in entry):
            if record["kind"] == StepRecord.kind:
                return self._under_way(record["step"] + 1)
            if record["kind"] == RunStatus.kind:
                if back or record["state"] not in LAST_WORDS:
                    return self._under_way(record["step"])
                return RunProgress(State(record["state"]), record["step"], record.get("message"))
        return RunProgress(State.PLANNED, 0)

    def has_lost_model(self) -> bool:
        """Whether the trained model that the run's last status names is gone."""
        last = next(from_end(self.journal), {})
        return last.get("model") is not None and not self.final.is_dir()

    def _under_way(self, steps: int) -> RunProgress:
        return RunProgress(State.RUNNING if self.lock_holder() else State.INTERRUPTED, steps)

    def has_records(self) -> bool:
        """Whether the run has recorded a start or a step."""
        records = from_end(self.journal)
        return any(
            record.get("kind") == StepRecord.kind or record.get("state") == STARTED
            for record in records
        )

    def enter(self, phase: Phase | None, detail: str = "") -> None:
        """Write the worker's phase with a `detail`; None: it leaves.

        OS errors are ignored: it is for display.
        """
        with suppress(OSError):
            if phase is None:
                (self.path / paths.PHASE).unlink(missing_ok=True)
            else:
                (self.path / paths.PHASE).write_text(f"{phase} {detail}".rstrip())

    def phase(self) -> tuple[Phase | None, str]:
        """The worker's phase with its detail; None if unknown."""
        with suppress(OSError, ValueError):
            phase, _, detail = (self.path / paths.PHASE).read_text().partition(" ")
            return Phase(phase), detail
        return None, ""

    @property
    def checkpoints(self) -> Path:
        """The folder of its checkpoints."""
        return self.path / paths.CHECKPOINTS

    @property
    def resume(self) -> Path:
        """The checkpoint from which the run resumes."""
        return self.checkpoints / paths.RESUME

    @property
    def final(self) -> Path:
        """The trained model as a Hugging Face folder."""
        return self.checkpoints / paths.FINAL

    def drop_resume(self) -> None:
        """Delete the resume checkpoint of a finished run, which is large and never read again."""
        for path in (self.resume, self.resume.with_name(f".{paths.RESUME}.partial")):
            path.unlink(missing_ok=True)


def same_run(run_id: str, other_id: str) -> bool:
    """Whether two ids name the same run or subject, whatever the study: a copied or archived study
    has another name.
    """
    return run_id.partition("/")[2] == other_id.partition("/")[2]


def work_folders(*homes: Path) -> Iterator[WorkFolder]:
    """All folders of studies in which a process has ever worked: runs, pilots, evaluations,
    grades.
    """
    for home in homes:
        for lock in home.glob(f"**/{paths.LOCK}"):
            yield WorkFolder(lock.parent)


def launched_folders(*homes: Path) -> Iterator[WorkFolder]:
    """All folders of studies with a launch on another host whose end was not yet noticed."""
    for home in homes:
        for path in home.glob(f"**/{paths.LAUNCHES}"):
            yield WorkFolder(path.parent)


def run_folders(home: Path) -> Iterator[RunFolder]:
    """The folders of a study's runs, without those of its pilots."""
    for path in home.glob("*/s*"):
        if path.is_dir() and not path.parent.name.startswith(("_", ".")):
            yield RunFolder(path)


def begun_arms(home: Path) -> set[str]:
    """The arms of a study with a recorded start or step."""
    return {folder.path.parent.name for folder in run_folders(home) if folder.has_records()}
