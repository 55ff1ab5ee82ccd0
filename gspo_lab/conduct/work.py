"""Keeps the slots busy until every errand has ended: starts workers, follows them, and stops them when asked to."""

import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from gspo_lab.conduct.watch import Watch
from gspo_lab.launch.base import Launcher, Process, Slot
from gspo_lab.runfolder import RunFolder, WorkFolder
from gspo_lab.states import Exit, State, state_of_exit

TICK_SECONDS = 0.2


@dataclass
class Errand:
    """A folder that a worker is to be started on. It is this study's `own`, or one that others may have work in too."""

    name: str
    folder: WorkFolder
    watch: Watch

    @property
    def own(self) -> bool:
        """Whether nobody but this study has work in the folder."""
        return isinstance(self.folder, RunFolder)


@dataclass(frozen=True)
class ErrandEnd:
    """How an errand's worker ended. `code` is its exit code, -N where signal N ended it."""

    errand: Errand
    code: int
    message: str

    @property
    def state(self) -> State:
        """What the exit code makes of the run."""
        return state_of_exit(self.code)

    @property
    def line(self) -> str:
        """For people."""
        progress = self.errand.watch.progress
        said = f": {self.message}" if self.message else ""
        return f"{self.errand.name}: {self.state} at step {progress.step}/{progress.steps}{said}"


class View(Protocol):
    """What people see of the errands."""

    def place(self, errand: Errand) -> None:
        """Its launcher says something new of it: it is queued, running or lost, and where."""
        ...

    def tick(self, now: float) -> None:
        """Some time has passed; `now` as in `time.monotonic`."""
        ...

    def end(self, ending: ErrandEnd) -> None:
        """An errand has ended."""
        ...

    def say(self, text: str) -> None:
        """Something to tell, in one line."""
        ...


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

    def __exit__(self, *error: object) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)

    def _heard(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1


def work_off(
    errands: Sequence[Errand],
    launcher: Launcher,
    slots: Sequence[Slot],
    view: View,
    interrupts: Interrupts,
    follow: Callable[[bool], None],
) -> list[ErrandEnd]:
    """Run the errands in order, one worker a slot; how each one that was started ended.

    Those that an earlier conductor has left with the launcher are followed from the first, as many as there are.
    `follow` is told at every tick whether any errand left something new. The first interrupt asks the workers to finish
    their step and starts no more; the second kills them.
    """
    active: list[_Active] = []
    endings: list[ErrandEnd] = []
    told: set[str] = set()
    heard = 0
    for errand in errands:
        if errand.own and (process := launcher.find(errand.folder.path)) is not None:
            active.append(_Active(errand, process, None))
            _place(active[-1], view)
    waiting = [errand for errand in errands if all(errand is not one.errand for one in active)]
    try:
        while waiting or active:
            count = interrupts.count  # read once: the next one may come while this one is obeyed
            if count > heard:
                waiting.clear()
                _interrupt(active, view, again=count > 1)
                heard = count
            news = False
            for one in list(active):
                code = one.process.poll()
                progress = one.errand.watch.progress
                news |= one.errand.watch.look(time.monotonic())
                if (
                    code == Exit.OCCUPIED and not heard
                ):  # another worker was quicker: of another study, where both need a warm start
                    active.remove(one)
                    waiting.append(one.errand)
                    progress.state = State.QUEUED
                elif code is not None:
                    active.remove(one)
                    endings.append(_end(one.errand, code))
                    progress.state = endings[-1].state
                    view.end(endings[-1])
                elif (one.process.state, one.process.place) != (progress.state, progress.place):
                    _place(one, view)
            for index, slot in enumerate(slots):
                taken = len(active) >= len(slots) or any(one.slot == index for one in active)
                if not taken and (next_errand := _free(waiting, view, told)) is not None:
                    waiting.remove(next_errand)
                    active.append(_Active(next_errand, launcher.start(next_errand.folder.path, slot), index))
                    _place(active[-1], view)
            view.tick(time.monotonic())
            follow(news)
            if active or waiting:
                time.sleep(TICK_SECONDS)
    finally:
        for one in active:  # only where something above went wrong
            one.process.stop()
    return endings


@dataclass(frozen=True)
class _Active:
    errand: Errand
    process: Process
    slot: int | None
    """Which of the slots it has; None of one that was found where an earlier conductor has put it."""


def _place(one: _Active, view: View) -> None:
    progress = one.errand.watch.progress
    progress.state, progress.place = one.process.state, one.process.place
    view.place(one.errand)


def _interrupt(active: Sequence[_Active], view: View, *, again: bool) -> None:
    if again:
        view.say("killing the workers; each goes on from its last checkpoint when started again")
    elif active:
        view.say(f"stopping: {len(active)} running finish their step and save (Ctrl-C again kills them)")
    for one in active:
        if again:
            one.process.kill()
        else:
            one.process.stop()


def _free(waiting: Sequence[Errand], view: View, told: set[str]) -> Errand | None:
    """The first errand that no other worker is at: one of a killed conductor may still be finishing its step."""
    for errand in waiting:
        other = errand.folder.at_work()
        if other is None:
            return errand
        if errand.name not in told:
            told.add(errand.name)
            view.say(f"{errand.name}: waiting for the worker that is still at it (process {other})")
    return None


def _end(errand: Errand, code: int) -> ErrandEnd:
    """How an errand ended. A code that no worker gives, or 0 without a last word, is not the worker's own."""
    folder = errand.folder
    said = (State.FINISHED, State.STOPPED)  # the latter of one that came to where it is to wait
    unsaid = code == Exit.FINISHED and isinstance(folder, RunFolder) and folder.standing().state not in said
    if unsaid or (code > 0 and code not in set(Exit)):
        why = f"its process was ended with exit code {code}, not by the worker: does the grader call os._exit?"
        return ErrandEnd(errand, code or Exit.CRASHED, f"{why} (log: {folder.log})")
    return ErrandEnd(errand, code, _message(errand, code))


def _message(errand: Errand, code: int) -> str:
    log = errand.folder.log
    if code in (Exit.FINISHED, Exit.STOPPED):
        return ""
    if code < 0:
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
        hint = "; out of memory?" if -code == signal.SIGKILL else ""
        return f"killed by {name}{hint} (log: {log})"
    if code == Exit.CANCELLED:
        return f"its job was cancelled on {errand.watch.progress.place}; the same command takes the run up again"
    if code == Exit.LOST:
        return f"its launcher has given it up on {errand.watch.progress.place} (log: {log})"
    stands = errand.folder.standing() if isinstance(errand.folder, RunFolder) else None
    said = stands.message if stands is not None and stands.state is State.FAILED else _last_line(log)
    return f"{said or f'exit code {code}'} (log: {log})"


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.is_file() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
