"""Keeps the slots busy until every job has ended: starts workers, follows them, and stops them when asked to."""

import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Protocol

from gspo_lab.conduct.watch import Watch
from gspo_lab.launch.base import Launcher, Process, Slot
from gspo_lab.runfolder import RunFolder, WorkFolder
from gspo_lab.states import Exit, State, state_of_exit

TICK_SECONDS = 0.2


@dataclass
class Job:
    """A folder that a worker is to be started on."""

    name: str
    folder: WorkFolder
    watch: Watch


@dataclass(frozen=True)
class Ending:
    """How a job's worker ended. `code` is its exit code, -N where signal N ended it."""

    job: Job
    code: int
    message: str

    @property
    def state(self) -> State:
        return state_of_exit(self.code)

    @property
    def line(self) -> str:
        """For people."""
        progress = self.job.watch.progress
        said = f": {self.message}" if self.message else ""
        return f"{self.job.name}: {self.state} at step {progress.step}/{progress.steps}{said}"


class View(Protocol):
    """What people see of the jobs."""

    def begin(self, job: Job, slot: Slot) -> None: ...
    def tick(self, now: float) -> None: ...
    def end(self, ending: Ending) -> None: ...
    def say(self, text: str) -> None: ...


class Interrupts:
    """Counts Ctrl-C and SIGTERM while it is open, in place of Python's KeyboardInterrupt in the middle of anything."""

    def __init__(self) -> None:
        self.count = 0
        self._former: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._former[number] = signal.signal(number, self._heard)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)

    def _heard(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1


def work_off(
    jobs: Sequence[Job],
    launcher: Launcher,
    slots: Sequence[Slot],
    view: View,
    interrupts: Interrupts,
    follow: Callable[[bool], None],
) -> list[Ending]:
    """Run the jobs in order, one worker a slot; how each one that was started ended.

    `follow` is told at every tick whether any job left something new. The first interrupt asks the workers to
    finish their step and starts no more; the second kills them.
    """
    waiting = list(jobs)
    active: dict[int, tuple[Job, Process]] = {}
    endings: list[Ending] = []
    told: set[str] = set()
    heard = 0
    try:
        while waiting or active:
            count = interrupts.count  # read once: the next one may come while this one is obeyed
            if count > heard:
                waiting.clear()
                _interrupt(active, view, again=count > 1)
                heard = count
            news = False
            for index, (job, process) in list(active.items()):
                code = process.poll()
                news |= job.watch.look(time.monotonic())
                if code is not None:
                    del active[index]
                    endings.append(Ending(job, code, _message(job, code)))
                    job.watch.progress.state = endings[-1].state
                    view.end(endings[-1])
            for index, slot in enumerate(slots):
                if index not in active and (next_job := _free(waiting, view, told)) is not None:
                    waiting.remove(next_job)
                    active[index] = (next_job, launcher.start(next_job.folder.path, slot))
                    next_job.watch.progress.state = State.RUNNING
                    view.begin(next_job, slot)
            view.tick(time.monotonic())
            follow(news)
            if active or waiting:
                time.sleep(TICK_SECONDS)
    finally:
        for _, process in active.values():  # only where something above went wrong
            process.stop()
    return endings


def _interrupt(active: dict[int, tuple[Job, Process]], view: View, *, again: bool) -> None:
    if again:
        view.say("killing the workers; each goes on from its last checkpoint when started again")
    elif active:
        view.say(f"stopping: {len(active)} running finish their step and save (Ctrl-C again kills them)")
    for _, process in active.values():
        if again:
            process.kill()
        else:
            process.stop()


def _free(waiting: Sequence[Job], view: View, told: set[str]) -> Job | None:
    """The first job that no other worker is at: one of a killed conductor may still be finishing its step."""
    for job in waiting:
        other = job.folder.at_work()
        if other is None:
            return job
        if job.name not in told:
            told.add(job.name)
            view.say(f"{job.name}: waiting for the worker that is still at it (process {other})")
    return None


def _message(job: Job, code: int) -> str:
    log = job.folder.log
    if code in (Exit.FINISHED, Exit.STOPPED):
        return ""
    if code < 0:
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        hint = "; out of memory?" if -code == signal.SIGKILL else ""
        return f"killed by {name}{hint} (log: {log})"
    stands = job.folder.standing() if isinstance(job.folder, RunFolder) else None
    said = stands.message if stands is not None and stands.state is State.FAILED else _last_line(log)
    return f"{said or f'exit code {code}'} (log: {log})"


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.is_file() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
