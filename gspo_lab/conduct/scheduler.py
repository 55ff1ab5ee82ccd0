"""Keeps the slots busy until all work has ended: starts workers, follows them, and stops them when asked to."""

import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from gspo_lab.conduct.watch import Watch
from gspo_lab.launch.base import Launcher, Process, Slot
from gspo_lab.progress import Cell, ProgressView
from gspo_lab.runfolder import RunFolder, WorkFolder
from gspo_lab.states import Exit, State, state_of_exit

TICK_SECONDS = 0.2


@dataclass
class WorkItem:
    """A folder that a worker is to be started on. It is this study's own, or one that other studies may work in too."""

    cell: Cell
    folder: WorkFolder
    watch: Watch

    @property
    def name(self) -> str:
        """For people: grpo/s0."""
        return self.cell.name


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
        return f"{self.item.name}: {self.state} at step {progress.step}/{progress.steps}{why}"


class Interrupts:
    """Counts Ctrl-C and SIGTERM while it is open, in place of Python's KeyboardInterrupt in the middle of anything."""

    def __init__(self) -> None:
        self.count = 0
        self._former: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._former[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *error: object) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1


def run_work_items(
    items: Sequence[WorkItem],
    launcher: Launcher,
    slots: Sequence[Slot],
    view: ProgressView,
    interrupts: Interrupts,
    follow: Callable[[bool], None],
) -> list[WorkItemResult]:
    """Run the items in order, one worker a slot; how each one that was started ended.

    Those that an earlier conductor has left with the launcher are followed from the first, as many as there are.
    `follow` is called at every tick, with whether any worker has written something new. The first interrupt asks the
    workers to finish their step and starts no more; the second kills them.
    """
    active: list[_Active] = []
    results: list[WorkItemResult] = []
    named: set[str] = set()
    obeyed = 0
    for item in items:
        if isinstance(item.folder, RunFolder) and (process := launcher.find(item.folder.path)) is not None:
            active.append(_Active(item, process, None))
            _show_place(active[-1], view)
    waiting = [item for item in items if all(item is not job.item for job in active)]
    try:
        while waiting or active:
            count = interrupts.count  # read once: the next one may come while this one is obeyed
            if count > obeyed:
                waiting.clear()
                _interrupt(active, view, again=count > 1)
                obeyed = count
            news = False
            for job in list(active):
                code = job.process.poll()
                progress = job.item.cell.progress
                news |= job.item.watch.look(time.monotonic())
                if code == Exit.OCCUPIED and not obeyed:
                    # Another worker was quicker: of another study, where both need a warm start.
                    active.remove(job)
                    waiting.append(job.item)
                    progress.state = State.QUEUED
                elif code is not None:
                    active.remove(job)
                    results.append(_result(job.item, code))
                    progress.state = results[-1].state
                    view.end(job.item.cell, results[-1].line)
                elif (job.process.state, job.process.place) != (progress.state, progress.place):
                    _show_place(job, view)
            for index, slot in enumerate(slots):
                taken = len(active) >= len(slots) or any(job.slot == index for job in active)
                if not taken and (item_free := _first_free(waiting, view, named)) is not None:
                    waiting.remove(item_free)
                    active.append(_Active(item_free, launcher.start(item_free.folder.path, slot), index))
                    _show_place(active[-1], view)
            view.tick(time.monotonic())
            follow(news)
            if active or waiting:
                time.sleep(TICK_SECONDS)
    finally:
        for job in active:  # only where something above went wrong
            job.process.stop()
    return results


@dataclass(frozen=True)
class _Active:
    item: WorkItem
    process: Process
    slot: int | None
    """Which of the slots it has; None where an earlier conductor has started it."""


def _show_place(job: _Active, view: ProgressView) -> None:
    progress = job.item.cell.progress
    progress.state, progress.place = job.process.state, job.process.place
    view.place(job.item.cell)


def _interrupt(active: Sequence[_Active], view: ProgressView, *, again: bool) -> None:
    if again:
        view.say("killing the workers; each resumes from its last checkpoint when started again")
    elif active:
        view.say(f"stopping: {len(active)} running finish their step and save (Ctrl-C again kills them)")
    for job in active:
        if again:
            job.process.kill()
        else:
            job.process.stop()


def _first_free(waiting: Sequence[WorkItem], view: ProgressView, named: set[str]) -> WorkItem | None:
    """The first item whose folder is free: the worker of a killed conductor may still be finishing its step."""
    for item in waiting:
        holder = item.folder.at_work()
        if holder is None:
            return item
        if item.name not in named:
            named.add(item.name)
            view.say(f"{item.name}: waiting for the worker that is still at it (process {holder})")
    return None


def _result(item: WorkItem, code: int) -> WorkItemResult:
    """How an item ended. A code that no worker gives, or 0 without a last status, did not come from the worker."""
    folder = item.folder
    expected = (State.FINISHED, State.STOPPED)  # the latter of one that reached the step where it is to wait
    silent = code == Exit.FINISHED and isinstance(folder, RunFolder) and folder.standing().state not in expected
    if silent or (code > 0 and code not in set(Exit)):
        why = f"its process was ended with exit code {code}, not by the worker: does the grader call os._exit?"
        return WorkItemResult(item, code or Exit.CRASHED, f"{why} (log: {folder.log})")
    return WorkItemResult(item, code, _message(item, code))


def _message(item: WorkItem, code: int) -> str:
    log = item.folder.log
    if code in (Exit.FINISHED, Exit.STOPPED):
        return ""
    if code < 0:
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        hint = "; out of memory?" if -code == signal.SIGKILL else ""
        return f"killed by {name}{hint} (log: {log})"
    if code == Exit.CANCELLED:
        return f"its job was cancelled on {item.cell.progress.place}; the same command resumes the run"
    if code == Exit.LOST:
        return f"its launcher has given it up on {item.cell.progress.place} (log: {log})"
    status = item.folder.standing() if isinstance(item.folder, RunFolder) else None
    why = status.message if status is not None and status.state is State.FAILED else _last_line(log)
    return f"{why or f'exit code {code}'} (log: {log})"


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.is_file() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
