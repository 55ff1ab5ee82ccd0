"""The workers of one study: start them on free slots, follow and show them, and stop them on
request.

Their records go into the database, and from there to mirrors, while they work.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Self

from rich.console import Console

from gspo_lab.common.errors import LabError
from gspo_lab.common.states import Exit, State, state_of_exit
from gspo_lab.exchange.exporters.live_export import Mirror
from gspo_lab.recording.runfolder import RunFolder, WorkFolder
from gspo_lab.recording.store import ingest
from gspo_lab.running.conduct.progress_watch import RunWatch, StartWatch
from gspo_lab.running.launch.base import Launcher, Slot, WorkerProcess
from gspo_lab.running.plan.preparation import (
    distinct_starts,
    needs_start,
    start_folder,
    warm_start_request,
)
from gspo_lab.running.progress import TRAINING, WARM_STARTS, ProgressCell, ProgressView
from gspo_lab.study import Run
from gspo_lab.study.parent import Kind

TICK_SECONDS = 0.2
INGEST_SECONDS = 0.5


@dataclass
class WorkItem:
    """A folder for a worker. Several studies may work in the folder of a warm start."""

    cell: ProgressCell
    folder: WorkFolder
    watch: RunWatch | StartWatch


def starts_to_make(runs_to_start: Iterable[Run], runs: Path) -> list[WorkItem]:
    """A work item for each missing warm start."""
    items = []
    for folder, run in distinct_starts(runs_to_start, runs).items():
        if folder.model_folder() is None:
            folder.write_request(warm_start_request(run, runs))
            watch = StartWatch(folder)
            seed = f"s{run.seed}" if run.settings.warm_start.per_seed else ""
            cell = ProgressCell(
                WARM_STARTS, f"warm start {run.settings.model}", seed, watch.progress
            )
            items.append(WorkItem(cell, folder, watch))
    return items


def run_item(run: Run, runs: Path, kind: Kind | None = None) -> WorkItem:
    """The work item of a run up to its `until`; `kind`: it is that of a derived study.

    `write_run` writes its run.json.
    """
    folder = RunFolder(run.folder(runs))
    watch = RunWatch(folder, run, run.until)
    stage = TRAINING if kind is None else f"{kind}s"
    row = run.arm if kind is None else f"{kind} {run.arm}"
    column = "" if kind is Kind.PILOT else f"s{run.seed}"
    return WorkItem(ProgressCell(stage, row, column, watch.progress), folder, watch)


def write_run(run: Run, runs: Path) -> RunFolder:
    """Write run.json with the folder of the starting model. Returns the run's folder."""
    folder = RunFolder(run.folder(runs))
    if needs_start(run.settings.model):
        start = start_folder(run, runs).model_folder()
        if start is None:
            raise LabError(f"{run.id}: its warm start has gone; start the study again to remake it")
        run = replace(run, warm_start=str(start))
    folder.specify(run.to_json())
    return folder


@dataclass(frozen=True)
class WorkItemResult:
    """The result of a work item's worker. `code` is its exit code; -N: signal N ended it."""

    item: WorkItem
    code: int
    message: str

    @property
    def state(self) -> State:
        """The run's state by the exit code."""
        return state_of_exit(self.code)

    @property
    def line(self) -> str:
        """One line for a terminal."""
        progress = self.item.cell.progress
        why = f": {self.message}" if self.message else ""
        return f"{self.item.cell.name}: {self.state} at step {progress.step}/{progress.steps}{why}"


@dataclass(frozen=True)
class _Active:
    item: WorkItem
    process: WorkerProcess
    slot: int | None
    """Index of its slot; None if an earlier process started it."""


@dataclass
class WorkerPool:
    """A context manager that puts work on slots, shows it, and writes the journals into the
    database.

    While it is open, Ctrl-C and SIGTERM are counted: no KeyboardInterrupt stops the code at a
    random place.
    """

    runs: Path
    console: Console
    launcher: Launcher
    slots: Sequence[Slot]
    view: ProgressView
    mirror: Mirror | None = None
    results: list[WorkItemResult] = field(default_factory=list)
    interrupts: int = 0
    _stack: ExitStack = field(default_factory=ExitStack)
    _active: list[_Active] = field(default_factory=list)
    _ingested: float = 0.0
    _behind: bool = False
    _printed: set[str] = field(default_factory=set)

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._stack.callback(
                    signal.signal, number, signal.signal(number, self._count_interrupt)
                )
        self._stack.enter_context(self.view)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _count_interrupt(self, *_: object) -> None:
        self.interrupts += 1

    def work(self, stage: str, items: Sequence[WorkItem]) -> bool:
        """Do the work of one stage in order, one worker per slot. True if all of it finished.

        Workers that an earlier process started are followed too. The first interrupt lets the
        workers finish their step and starts no more; the second kills them.
        """
        if self.interrupts:
            return False
        if not items:
            return True
        self.view.begin(stage, [item.cell for item in items], len(self.slots))
        results_before = len(self.results)
        obeyed = 0
        waiting = []
        for item in items:
            process = (
                self.launcher.find_worker(item.folder.path)
                if isinstance(item.folder, RunFolder)
                else None
            )
            if process is None:
                waiting.append(item)
            else:
                self._follow(_Active(item, process, None))
        try:
            while waiting or self._active:
                self._require_folders()
                count = self.interrupts  # read once: it may grow meanwhile
                if count > obeyed:
                    waiting.clear()
                    self._interrupt(again=count > 1)
                    obeyed = count
                waiting += self._look(retry=not obeyed)
                self._fill(waiting)
                self.view.refresh_view(time.monotonic())
                self._store()
                if self._active or waiting:
                    time.sleep(TICK_SECONDS)
        finally:
            while self._active:  # only after an exception
                self._active.pop().process.stop()
        states = [result.state for result in self.results[results_before:]]
        return states.count(State.FINISHED) == len(items)

    def _require_folders(self) -> None:
        """LabError where the folder of all runs, or of the study of a worker, is gone."""
        studies = [job.item.folder.path.parents[1] for job in self._active]
        for folder in (self.runs, *studies):
            if not folder.is_dir():
                raise LabError(
                    f"{folder} was moved or deleted while the study ran: the workers stop, and the"
                    " same command resumes where it is back, or with --runs FOLDER where it is now"
                )

    def ingest(self) -> None:
        """Write all new journal lines into the database."""
        ingest(self.runs)
        self._ingested = time.monotonic()
        self._behind = False

    def end(self) -> None:
        """Write all new journal lines into the database and the mirrors."""
        self.ingest()
        if self.mirror is not None:
            self._try("the mirror is behind", self.mirror.finish)

    def _look(self, *, retry: bool) -> list[WorkItem]:
        """Read the workers' new records and note which have ended.

        Returns the items to start again.
        """
        again = []
        for job in list(self._active):
            code = job.process.poll()
            progress = job.item.cell.progress
            self._behind |= job.item.watch.look(time.monotonic())
            if code is None:
                if (job.process.state, job.process.place) != (progress.state, progress.place):
                    self._show_place(job)
                continue
            self._active.remove(job)
            if (
                code == Exit.OCCUPIED and retry
            ):  # a worker of another study makes the same warm start
                again.append(job.item)
                progress.state = State.QUEUED
            else:
                self.results.append(result := _result(job.item, code))
                progress.state = result.state
                self.view.end(job.item.cell, result.line)
        return again

    def _fill(self, waiting: list[WorkItem]) -> None:
        for index, slot in enumerate(self.slots):
            occupied = len(self._active) >= len(self.slots) or any(
                job.slot == index for job in self._active
            )
            if not occupied and (item := self._first_free(waiting)) is not None:
                waiting.remove(item)
                self._follow(_Active(item, self.launcher.start(item.folder.path, slot), index))

    def _first_free(self, waiting: Sequence[WorkItem]) -> WorkItem | None:
        """The first item whose folder is free: a worker may outlive the killed process that started
        it.
        """
        for item in waiting:
            holder = item.folder.lock_holder()
            if holder is None:
                return item
            self._print_once(
                f"{item.cell.name}: waiting for the worker that is still at it (process {holder})"
            )
        return None

    def _follow(self, job: _Active) -> None:
        self._active.append(job)
        self._show_place(job)

    def _show_place(self, job: _Active) -> None:
        progress = job.item.cell.progress
        progress.state = job.process.state
        progress.place = job.process.place
        self.view.show_state(job.item.cell)

    def _interrupt(self, *, again: bool) -> None:
        stopping = (
            f"stopping: {len(self._active)} running finish their step and save (Ctrl-C again kills"
            " them)"
        )
        killing = "killing the workers; each resumes from its last checkpoint when started again"
        if again or self._active:
            self.view.print_line(killing if again else stopping)
        for job in self._active:
            (job.process.kill if again else job.process.stop)()

    def _store(self) -> None:
        due = self._behind and time.monotonic() - self._ingested >= INGEST_SECONDS
        if due:
            self._ingested = time.monotonic()
            self._try("the database is behind", self.ingest)
        if self.mirror is not None:
            self._try("the mirror is behind", partial(self.mirror.follow, due))

    def _try(self, trouble: str, action: Callable[[], None]) -> None:
        """Report a failure of the database or a mirror once and go on; the last `ingest` raises if
        it stays.
        """
        try:
            action()
        except (LabError, OSError) as error:
            self._print_once(f"{trouble}: {error}")

    def _print_once(self, line: str) -> None:
        if line not in self._printed:
            self._printed.add(line)
            self.view.print_line(line)


def _result(item: WorkItem, code: int) -> WorkItemResult:
    """The result of an item.

    An unknown code, or 0 without a last status, did not come from the worker.
    """
    log = item.folder.log
    place = item.cell.progress.place
    standing = item.folder.status() if isinstance(item.folder, RunFolder) else None
    # A worker that reached the run's `until` has the state `stopped`.
    silent = (
        code == Exit.FINISHED
        and standing is not None
        and standing.state not in (State.FINISHED, State.STOPPED)
    )
    message = ""
    if silent or (code > 0 and code not in set(Exit)):
        message = (
            f"its process was ended with exit code {code}, not by the worker: does the grader call"
            " os._exit?"
        )
        code = code or Exit.CRASHED
    elif code < 0:
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        message = f"killed by {name}"
        if code == -signal.SIGKILL:
            message += "; out of memory?"
    elif code == Exit.CANCELLED:
        return WorkItemResult(
            item, code, f"its job was cancelled on {place}; the same command resumes the run"
        )
    elif code == Exit.LOST:
        message = f"its launcher has given it up on {place}; the same command resumes the run"
    elif code not in (Exit.FINISHED, Exit.STOPPED):
        if standing is not None and standing.state is State.FAILED:
            message = standing.message or ""
        elif log.is_file():
            message = (
                log.read_text(encoding="utf-8", errors="replace")
                .strip()
                .rpartition("\n")[2]
                .strip()
            )
        message = message or f"exit code {code}"
    return WorkItemResult(item, code, f"{message} (log: {log})" if message else "")
