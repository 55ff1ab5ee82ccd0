"""A run is a folder and a command: the files of that folder, each under one name, and the run's progress.

    WorkFolder              a worker is started on it: its lock, its log
      StartFolder           a warm start to make
      JournalFolder         records, who writes them, and later grades of the answers among them
        EvaluationFolder    a later evaluation
        SubjectFolder       who can be asked: a model or a server
          RunFolder         a run, whose checkpoints can be asked

Files are read on demand and never cached, because a folder changes while it is read.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gspo_lab import layout
from gspo_lab.errors import LabError
from gspo_lab.files import held, holder, read_entry, read_json, write_json
from gspo_lab.journal import Journal, JournalReader, from_end, in_force, scan
from gspo_lab.records import RunStatus, StepRecord
from gspo_lab.states import LAST_WORDS, STARTED, Phase, State

if TYPE_CHECKING:  # who only looks where runs stand needs no settings, and no pydantic
    from gspo_lab.study import Run


def _folders(content: dict[str, Any]) -> list[str]:
    """The keys of run.json that name a folder: from the run's own folder, or, as earlier versions wrote them, whole. An
    imported run has none."""
    return [] if content.get("origin") else [key for key in ("base", "warm_start") if content.get(key)]


@dataclass(frozen=True)
class WorkFolder:
    """What a worker is started on."""

    path: Path

    @property
    def log(self) -> Path:
        """The worker's output."""
        return self.path / layout.LOG

    @property
    def launches(self) -> Path:
        """What launchers have asked for on other hosts, and what became of it (`launch.afar`)."""
        return self.path / layout.LAUNCHES

    def at_work(self) -> str | None:
        """The process that holds the folder, for people; None where nobody does."""
        return holder(self.path / layout.LOCK)

    def held(self, refusal: str) -> AbstractContextManager[None]:
        """Be the one who works here. InUse(refusal) where another process does."""
        return held(self.path / layout.LOCK, refusal)


class StartFolder(WorkFolder):
    """A warm start to make: what is wished for, how far it is, and where the model lies once it is made."""

    @property
    def wished(self) -> bool:
        """Whether it says what is to be made."""
        return (self.path / layout.WARM_START).is_file()

    def wish(self) -> dict[str, Any]:
        """Model, task, settings, seed, base and cache."""
        return read_json(self.path / layout.WARM_START) or {}

    def ask(self, wish: dict[str, Any]) -> None:
        """Write what is to be made. Several studies may ask for the same at once."""
        write_json(self.path / layout.WARM_START, wish, shared=True)

    def steps_done(self) -> int:
        """How far its worker says that it is."""
        return read_entry(self.path / layout.PROGRESS, "step", int) or 0

    def say(self, step: int, steps: int) -> None:
        """How far it is: `step` of `steps`."""
        write_json(self.path / layout.PROGRESS, {"step": step, "steps": steps})

    def made(self) -> Path | None:
        """The model's folder, if it has been made and is still there."""
        made = read_entry(self.path / layout.MADE, "path", str)
        return Path(made) if made is not None and Path(made).exists() else None

    def finish(self, model: Path) -> None:
        """Write where the model lies that was made."""
        write_json(self.path / layout.MADE, {"path": str(model.resolve())})


class JournalFolder(WorkFolder):
    """Records, and who writes them."""

    @property
    def journal(self) -> Path:
        """The file of its records."""
        return self.path / layout.JOURNAL

    def append(self) -> Journal:
        """The journal, to be written to by whoever holds the folder."""
        return Journal(self.path)

    @contextmanager
    def append_for(self, run: str) -> Iterator[Journal]:
        """The same of answers or grades that belong to a run or a subject, which the first line names."""
        with self.append() as journal:
            if not journal.begun:
                journal.write([RunStatus(state=STARTED, step=0, run=run)])
            yield journal

    def recorded_for(self) -> str | None:
        """The run or subject that the first line names; None where it names none, as in older journals."""
        first = next(iter(JournalReader(self.journal)), {})
        return first.get("run") if first.get("kind") == RunStatus.kind else None

    def records(self, *kinds: str) -> list[dict[str, Any]]:
        """The records in force, of some kinds or of all, in their order."""
        records = in_force(scan(self.journal).items)
        return [record for record in records if not kinds or record.get("kind") in kinds]

    @property
    def grades(self) -> "JournalFolder":
        """Later grades of its answers."""
        return JournalFolder(self.path / layout.GRADES)


class EvaluationFolder(JournalFolder):
    """A later evaluation: what was declared, and the answers."""

    def declaration(self) -> dict[str, Any] | None:
        """What is asked of whom and how; None before anything was."""
        return read_json(self.path / layout.EVALUATION)

    def declare(self, content: dict[str, Any]) -> None:
        """Write what is asked of whom and how."""
        write_json(self.path / layout.EVALUATION, content, sealed=True)


class SubjectFolder(JournalFolder):
    """Who can be asked: a folder of evaluations, and of a model or a server what it is."""

    def evaluation(self, name: str) -> EvaluationFolder:
        """The folder of a later evaluation by its name, there or not."""
        return EvaluationFolder(self.path / layout.EVALUATIONS / name)

    def describe(self, content: dict[str, Any]) -> None:
        """Write what a subject is that is no run."""
        write_json(self.path / layout.SUBJECT, content, sealed=True)


@dataclass(frozen=True)
class Standing:
    """Where a run stands by its folder alone: its state, the steps that are complete, and why it failed."""

    state: State
    steps: int
    message: str | None = None

    @property
    def finished(self) -> bool:
        """Whether it came to its end."""
        return self.state is State.FINISHED


class RunFolder(SubjectFolder):
    """A run: what it is to do, where it stands, its checkpoints."""

    @property
    def is_declared(self) -> bool:
        """Whether it says what is to be run."""
        return (self.path / layout.RUN).is_file()

    def specification(self) -> dict[str, Any] | None:
        """run.json as it is; None where there is none."""
        return read_json(self.path / layout.RUN)

    def specify(self, content: dict[str, Any], *, imported: bool = False) -> None:
        """Write run.json where it does not say so already, its folders as seen from here: a record that is shared names
        no machine's. LabError where another program recorded the run, unless this is its import again."""
        present, home = self.specification(), self.path.resolve()
        content = content | {key: os.path.relpath(content[key], home) for key in _folders(content)}
        if present == content:
            return
        if present is not None and present.get("origin") is not None and not imported:
            raise LabError(f"{self.path} was recorded by another program, and cannot be gone on with: use --name NEW")
        write_json(self.path / layout.RUN, content)

    def run(self) -> "Run":
        """What is to be run. LabError where run.json is missing or damaged."""
        from gspo_lab.study import Run

        remedy = "restore it from a copy, or move its folder away and call gspo-lab rebuild"
        data = self.specification()
        if data is None:
            raise LabError(f"{self.path / layout.RUN} is missing: {remedy}")
        try:
            return Run.from_json(data | {key: str((self.path / data[key]).resolve()) for key in _folders(data)})
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            why = f"{type(error).__name__}: {reason}"
            raise LabError(f"{self.path / layout.RUN} is damaged ({why}): {remedy}") from error

    def standing(self) -> Standing:
        """Where the run stands, whatever the journal's length: its last word counts, or else its last step."""
        for back, record in enumerate(entry for entry in from_end(self.journal) if "kind" in entry):
            if record["kind"] == StepRecord.kind:
                return self._under_way(record["step"] + 1)
            if record["kind"] == RunStatus.kind:
                if back or record["state"] not in LAST_WORDS:
                    return self._under_way(record["step"])
                return Standing(State(record["state"]), record["step"], record.get("message"))
        return Standing(State.PLANNED, 0)

    def _under_way(self, steps: int) -> Standing:
        return Standing(State.RUNNING if self.at_work() else State.INTERRUPTED, steps)

    def begun(self) -> bool:
        """Whether more is recorded than that the run could not begin."""
        records = from_end(self.journal)
        return any(record.get("kind") == StepRecord.kind or record.get("state") == STARTED for record in records)

    def enter(self, phase: Phase | None, detail: str = "") -> None:
        """Say what its worker does, and `detail`, of what; None: it leaves. Never worth an error: people only look."""
        with suppress(OSError):
            if phase is None:
                (self.path / layout.PHASE).unlink(missing_ok=True)
            else:
                (self.path / layout.PHASE).write_text(f"{phase} {detail}".rstrip())

    def phase(self) -> tuple[Phase | None, str]:
        """What its worker does and the detail that it gave; None where it does not say."""
        with suppress(OSError, ValueError):
            phase, _, detail = (self.path / layout.PHASE).read_text().partition(" ")
            return Phase(phase), detail
        return None, ""

    @property
    def checkpoints(self) -> Path:
        """The folder of its checkpoints."""
        return self.path / layout.CHECKPOINTS

    @property
    def resume(self) -> Path:
        """What the run goes on from."""
        return self.checkpoints / layout.RESUME

    @property
    def final(self) -> Path:
        """The trained model as a Hugging Face folder."""
        return self.checkpoints / layout.FINAL

    def drop_resume(self) -> None:
        """Delete what a finished run would have gone on from: as large as the optimizer's state, never read again."""
        for path in (self.resume, self.resume.with_name(f".{layout.RESUME}.partial")):
            path.unlink(missing_ok=True)


def same_run(first: str, second: str) -> bool:
    """Whether two ids name the same run or subject. The study's name does not count: a copied or archived study has
    another one."""
    return first.partition("/")[2] == second.partition("/")[2]


def work_folders(home: Path) -> Iterator[WorkFolder]:
    """All folders of a study in which somebody has ever been at work: runs, pilots, evaluations, grades."""
    return (WorkFolder(lock.parent) for lock in home.glob(f"**/{layout.LOCK}"))


def launched_folders(home: Path) -> Iterator[WorkFolder]:
    """All folders of a study on which a worker of another host was asked for and whose end nobody took note of."""
    return (WorkFolder(path.parent) for path in home.glob(f"**/{layout.LAUNCHES}"))


def run_folders(home: Path) -> Iterator[RunFolder]:
    """The folders of a study's runs; those of its pilots are left out."""
    for path in home.glob("*/s*"):
        if path.is_dir() and not path.parent.name.startswith(("_", ".")):
            yield RunFolder(path)


def begun_arms(home: Path) -> set[str]:
    """The arms of a study that have recorded anything."""
    return {folder.path.parent.name for folder in run_folders(home) if folder.begun()}
