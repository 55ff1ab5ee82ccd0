"""The workers of one study: started on free slots, followed and shown, and stopped when somebody asks for it.

What they record is taken into the database while they work, and mirrored from there.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Self

from rich.console import Console

from gspo_lab.conduct.watch import RunWatch, StartWatch
from gspo_lab.errors import LabError
from gspo_lab.exporters.mirror import Mirror
from gspo_lab.launch.base import Launcher, Process, Slot
from gspo_lab.plan.preparation import distinct_starts, needs_start, start_folder, wish
from gspo_lab.progress import WARM_STARTS, ProgressCell, ProgressView
from gspo_lab.runfolder import RunFolder, WorkFolder
from gspo_lab.states import Exit, State, state_of_exit
from gspo_lab.store import ingest
from gspo_lab.study import Run

TICK_SECONDS, INGEST_SECONDS = 0.2, 0.5
TRAINING = "training"


@dataclass
class WorkItem:
    """A folder that a worker is to be started on. It is this study's own, or one that other studies may work in too."""

    cell: ProgressCell
    folder: WorkFolder
    watch: RunWatch | StartWatch


def starts_to_make(wanted: Iterable[Run], runs: Path) -> list[WorkItem]:
    """A work item for each warm start that does not exist yet."""
    items = []
    for folder, run in distinct_starts(wanted, runs).items():
        if folder.made() is None:
            folder.write_request(wish(run, runs))
            watch, seed = StartWatch(folder), f"s{run.seed}" if run.settings.warm_start.per_seed else ""
            cell = ProgressCell(WARM_STARTS, f"warm start {run.settings.model}", seed, watch.progress)
            items.append(WorkItem(cell, folder, watch))
    return items


def run_item(
    run: Run, runs: Path, *, stage: str = TRAINING, row: str | None = None, column: str | None = None
) -> WorkItem:
    """The work item of a run, up to where it is to wait; its run.json is written by `write_run`."""
    folder = RunFolder(run.folder(runs))
    watch = RunWatch(folder, run, run.until)
    row, column = run.arm if row is None else row, f"s{run.seed}" if column is None else column
    cell = ProgressCell(stage, row, column, watch.progress)
    return WorkItem(cell, folder, watch)


def write_run(run: Run, runs: Path) -> RunFolder:
    """Write run.json, with the model's folder that the run starts from; the run's folder."""
    folder = RunFolder(run.folder(runs))
    if needs_start(run.settings.model):
        start = start_folder(run, runs).made()
        if start is None:
            raise LabError(f"{run.id}: its warm start has gone; start the study again to remake it")
        run = replace(run, warm_start=str(start))
    folder.specify(run.to_json())
    return folder


@dataclass(frozen=True)
class WorkItemResult:
    """How a work item's worker ended. `code` is its exit code, -N where signal N ended it."""

    item: WorkItem
    code: int
    message: str

    @property
    def state(self) -> State:
        """What the exit code makes of the run."""
        return state_of_exit(self.code)

    @property
    def line(self) -> str:
        """For people."""
        progress = self.item.cell.progress
        why = f": {self.message}" if self.message else ""
        return f"{self.item.cell.name}: {self.state} at step {progress.step}/{progress.steps}{why}"


class Interrupts:
    """Counts Ctrl-C and SIGTERM while it is open, in place of Python's KeyboardInterrupt in the middle of anything."""

    def __init__(self) -> None:
        self.count = 0
        self._former: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._former[number] = signal.signal(number, self._on_signal)

    def __exit__(self, *error: object) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1


@dataclass(frozen=True)
class _Active:
    item: WorkItem
    process: Process
    slot: int | None
    """Which of the slots it has; None where an earlier conductor has started it."""


@dataclass
class WorkerPool:
    """The workers of one study: puts work on slots, shows it, and takes the journals into the database. `with` it."""

    runs: Path
    console: Console
    launcher: Launcher
    slots: Sequence[Slot]
    view: ProgressView
    mirror: Mirror | None = None
    results: list[WorkItemResult] = field(default_factory=list)
    interrupts: Interrupts = field(default_factory=Interrupts)
    _stack: ExitStack = field(default_factory=ExitStack)
    _active: list[_Active] = field(default_factory=list)
    _ingested: float = 0.0
    _behind: bool = False
    _told: set[str] = field(default_factory=set)

    def __enter__(self) -> Self:
        self._stack.enter_context(self.interrupts)
        self._stack.enter_context(self.view)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def work(self, stage: str, items: Sequence[WorkItem]) -> bool:
        """Do the work of one stage, in order, one worker a slot; whether all of it was finished.

        Workers that an earlier conductor has left with the launcher are followed from the first, as many as there are.
        The first interrupt asks the workers to finish their step and starts no more; the second kills them.
        """
        if self.interrupts.count:
            return False
        if not items:
            return True
        self.view.begin(stage, [item.cell for item in items], len(self.slots))
        before, obeyed = len(self.results), 0
        for item in items:
            if isinstance(item.folder, RunFolder) and (process := self.launcher.find(item.folder.path)) is not None:
                self._follow(_Active(item, process, None))
        waiting = [item for item in items if all(item is not job.item for job in self._active)]
        try:
            while waiting or self._active:
                count = self.interrupts.count  # read once: the next one may come while this one is obeyed
                if count > obeyed:
                    waiting.clear()
                    self._interrupt(again=count > 1)
                    obeyed = count
                waiting += self._look(retry=not obeyed)
                self._fill(waiting)
                self.view.tick(time.monotonic())
                self._store()
                if self._active or waiting:
                    time.sleep(TICK_SECONDS)
        finally:
            for job in self._active:  # only where something above went wrong
                job.process.stop()
            self._active.clear()
        results = self.results[before:]
        return len(results) == len(items) and all(result.state is State.FINISHED for result in results)

    def ingest(self) -> None:
        """Take everything that the journals hold into the database."""
        ingest(self.runs)
        self._ingested, self._behind = time.monotonic(), False

    def end(self) -> None:
        """Take everything that the journals hold into the database, and from there into the mirrors."""
        self.ingest()
        if self.mirror is not None:
            self._try("the mirror is behind", self.mirror.finish)

    def _look(self, *, retry: bool) -> list[WorkItem]:
        """Read what the workers have written, and note who has ended; the items that are to be tried again."""
        again = []
        for job in list(self._active):
            code, progress = job.process.poll(), job.item.cell.progress
            self._behind |= job.item.watch.look(time.monotonic())
            if code == Exit.OCCUPIED and retry:
                # Another worker was quicker: of another study, where both need a warm start.
                self._active.remove(job)
                again.append(job.item)
                progress.state = State.QUEUED
            elif code is not None:
                self._active.remove(job)
                self.results.append(_result(job.item, code))
                progress.state = self.results[-1].state
                self.view.end(job.item.cell, self.results[-1].line)
            elif (job.process.state, job.process.place) != (progress.state, progress.place):
                self._show_place(job)
        return again

    def _fill(self, waiting: list[WorkItem]) -> None:
        for index, slot in enumerate(self.slots):
            taken = len(self._active) >= len(self.slots) or any(job.slot == index for job in self._active)
            if not taken and (item := self._first_free(waiting)) is not None:
                waiting.remove(item)
                self._follow(_Active(item, self.launcher.start(item.folder.path, slot), index))

    def _first_free(self, waiting: Sequence[WorkItem]) -> WorkItem | None:
        """The first item whose folder is free: the worker of a killed conductor may still be finishing its step."""
        for item in waiting:
            holder = item.folder.lock_holder()
            if holder is None:
                return item
            self._say_once(f"{item.cell.name}: waiting for the worker that is still at it (process {holder})")
        return None

    def _follow(self, job: _Active) -> None:
        self._active.append(job)
        self._show_place(job)

    def _show_place(self, job: _Active) -> None:
        progress = job.item.cell.progress
        progress.state, progress.place = job.process.state, job.process.place
        self.view.place(job.item.cell)

    def _interrupt(self, *, again: bool) -> None:
        if again:
            self.view.say("killing the workers; each resumes from its last checkpoint when started again")
        elif self._active:
            self.view.say(f"stopping: {len(self._active)} running finish their step and save (Ctrl-C again kills them)")
        for job in self._active:
            if again:
                job.process.kill()
            else:
                job.process.stop()

    def _store(self) -> None:
        due = self._behind and time.monotonic() - self._ingested >= INGEST_SECONDS
        if due:
            self._ingested = time.monotonic()
            self._try("the database is behind", self.ingest)
        if self.mirror is not None:
            self._try("the mirror is behind", partial(self.mirror.follow, due))

    def _try(self, trouble: str, action: Callable[[], None]) -> None:
        """The journals are the truth: where the database or a mirror fails, training goes on, and the failure is told
        once. The last `ingest` raises if it stays."""
        try:
            action()
        except (LabError, OSError) as error:
            self._say_once(f"{trouble}: {error}")

    def _say_once(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self.view.say(line)


def _result(item: WorkItem, code: int) -> WorkItemResult:
    """How an item ended. A code that no worker gives, or 0 without a last status, did not come from the worker."""
    folder, log = item.folder, item.folder.log
    standing = folder.status() if isinstance(folder, RunFolder) else None
    # A worker that reached the step where it is to wait has stopped.
    silent = code == Exit.FINISHED and standing is not None and standing.state not in (State.FINISHED, State.STOPPED)
    message = ""
    if silent or (code > 0 and code not in set(Exit)):
        message = f"its process was ended with exit code {code}, not by the worker: does the grader call os._exit?"
        code = code or Exit.CRASHED
    elif code < 0:
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        message = f"killed by {name}{'; out of memory?' if -code == signal.SIGKILL else ''}"
    elif code == Exit.CANCELLED:
        place = item.cell.progress.place
        return WorkItemResult(item, code, f"its job was cancelled on {place}; the same command resumes the run")
    elif code == Exit.LOST:
        message = f"its launcher has given it up on {item.cell.progress.place}"
    elif code not in (Exit.FINISHED, Exit.STOPPED):
        failed = standing is not None and standing.state is State.FAILED
        message = (standing.message if failed and standing is not None else _last_line(log)) or f"exit code {code}"
    return WorkItemResult(item, code, f"{message} (log: {log})" if message else "")


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.is_file() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
