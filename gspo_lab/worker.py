"""The command behind every run: `python -m gspo_lab.worker FOLDER`. Whoever starts it, it does the same.

Trains the run of FOLDER/run.json into FOLDER/journal.jsonl, or makes the warm start of FOLDER/warm_start.json.
Exit codes: 0 finished, 3 stopped on request (SIGINT or SIGTERM: the step is finished and saved; a second signal ends
it at once), 2 LabError, 1 crash. Killed at any moment, it goes on from its last checkpoint when started again.
"""

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from gspo_lab.engines import ENGINES
from gspo_lab.engines.check import METHODS
from gspo_lab.errors import LabError
from gspo_lab.files import held, read_json, write_json
from gspo_lab.journal import Journal, read
from gspo_lab.launch.folder import drop_resume, standing
from gspo_lab.launch.local import CONDUCTOR
from gspo_lab.layout import LOCK, MADE, PROGRESS, RUN, WARM_START
from gspo_lab.records import Record, RunStatus, StepRecord
from gspo_lab.registry import check_made, look_up
from gspo_lab.study import Run

FINISHED, CRASHED, REFUSED, STOPPED = 0, 1, 2, 3


def main(arguments: Sequence[str]) -> int:
    """Work on the one folder named; the exit code."""
    if len(arguments) != 1:
        print("usage: python -m gspo_lab.worker FOLDER", file=sys.stderr)
        return REFUSED
    folder = Path(arguments[0]).resolve()
    asked = next((name for name in (RUN, WARM_START) if (folder / name).is_file()), None)
    if asked is None:
        print(f"no {RUN} in {folder}: a worker is started on a run's folder, runs/STUDY/ARM/sSEED", file=sys.stderr)
        return REFUSED
    stop = StopAsked(os.environ.get(CONDUCTOR))
    signal.signal(signal.SIGINT, stop.heard)
    signal.signal(signal.SIGTERM, stop.heard)
    try:
        with held(folder / LOCK, f"another worker is at work in {folder}"):
            return train(folder, stop) if asked == RUN else make_start(folder, stop)
    except LabError as error:
        print("\n".join((str(error), *error.details)), file=sys.stderr)
        return REFUSED


class StopAsked:
    """True once a signal has asked this worker to stop, or once the conductor that started it is gone.

    A worker whose conductor was killed would else train on unseen, in the way of whoever takes the study up again.
    """

    def __init__(self, conductor: str | None) -> None:
        self._conductor = conductor
        self._signals = 0

    def heard(self, number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals > 1:
            os._exit(128 + number)

    def __call__(self) -> bool:
        orphaned = self._conductor is not None and str(os.getppid()) != self._conductor
        return self._signals > 0 or orphaned


class StepCount:
    """A sink that passes everything on to the journal and knows how many steps are complete."""

    def __init__(self, journal: Journal, steps: int) -> None:
        self._journal = journal
        self.steps = steps

    def write(self, records: Sequence[Record]) -> None:
        self._journal.write(records)
        for record in records:
            if isinstance(record, StepRecord):
                self.steps = record.step + 1
            elif isinstance(record, RunStatus):
                if record.state == "started":
                    self._whole(record.step)
                self.steps = record.step

    def _whole(self, step: int) -> None:
        """LabError if the journal lacks a step before the one at which the run is taken up."""
        lines, _ = read(self._journal.path)
        lacking = set(range(step)) - {line.get("step") for line in lines if line.get("kind") == StepRecord.kind}
        if lacking:
            raise LabError(
                f"{self._journal.path} lacks step {min(lacking)} though the run has come to step {step}; "
                f"delete the folder {self._journal.path.parent} to make the run again"
            )

    def say(self, state: str, message: str | None = None) -> None:
        self.write([RunStatus(state=state, step=self.steps, at=time.time(), message=message)])


def train(folder: Path, stop: StopAsked) -> int:
    """Train the run of `folder` from where it stands; its last word goes to the journal."""
    run = Run.from_json(read_json(folder / RUN))
    stands = standing(folder)
    if stands.finished:
        drop_resume(folder)  # a kill may have come between the last word and this
        return FINISHED
    with Journal(folder) as journal:
        sink = StepCount(journal, stands.steps)
        try:
            engine = look_up("engine", run.settings.engine, ENGINES, Path(run.base))()
            check_made("engine", run.settings.engine, engine, METHODS)
            complete = engine.train(run, sink, folder, stop)
        except LabError as error:
            sink.say("failed", " | ".join((str(error), *error.details)))
            raise
        except Exception as error:
            sink.say("failed", f"{type(error).__name__}: {error}".partition("\n")[0])
            raise
        sink.say("finished" if complete else "stopped")
    if complete:
        drop_resume(folder)
    return FINISHED if complete else STOPPED


class Stopped(Exception):
    """Asked to stop in the middle of a warm start, which is then made again from its beginning."""


def make_start(folder: Path, stop: StopAsked) -> int:
    """Make the warm start that `folder` asks for; how far it is goes to progress.json, the result to made.json."""
    from gspo_lab.models.warmstart import warm_start
    from gspo_lab.study.schema import WarmStart
    from gspo_lab.tasks import build_task

    wish = read_json(folder / WARM_START)
    settings = WarmStart.model_validate(wish["warm_start"])
    task = build_task(wish["task"]["name"], wish["task"]["options"], Path(wish["base"]))
    written = 0.0

    def progress(step: int, *_: object) -> None:
        nonlocal written
        if stop():
            raise Stopped
        if time.monotonic() - written > 0.5:
            written = time.monotonic()
            write_json(folder / PROGRESS, {"step": step, "steps": settings.steps})

    try:
        made = warm_start(wish["model"], task, settings, wish["seed"], Path(wish["cache"]), progress=progress)
    except Stopped:
        return STOPPED
    write_json(folder / MADE, {"path": str(made.resolve())})
    return FINISHED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
