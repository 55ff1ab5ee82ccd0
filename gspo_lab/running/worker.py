"""The command behind every run: `python -m gspo_lab.running.worker FOLDER`.

Trains the run of FOLDER/run.json into FOLDER/journal.jsonl, or makes the warm start of
FOLDER/warm_start.json. It ends with one of `states.Exit`; SIGINT and SIGTERM ask it to finish its
step and save, a second one ends it at once. With ENDED_BY_TERM in its environment the first SIGTERM
ends it. Killed at any moment, it goes on from its last checkpoint when started again.
"""

import io
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from gspo_lab.common.atomic_files import sums_digest
from gspo_lab.common.errors import Crashed, InUse, LabError, refused
from gspo_lab.common.paths import RUN, WARM_START
from gspo_lab.common.plain_data import OptionalText
from gspo_lab.common.states import STARTED, Exit, Phase, State
from gspo_lab.recording.journal import Journal, seal
from gspo_lab.recording.records import Record, RunStatus, StepRecord
from gspo_lab.recording.runfolder import RunFolder, StartFolder
from gspo_lab.running.launch.base import CONDUCTOR, ENDED_BY_TERM, STOP_SIGNALS
from gspo_lab.study import Run
from gspo_lab.training.engines import ENGINES
from gspo_lab.training.engines.check import make_engine

MOST_LOG_BYTES = 32 << 20
"""A longer log is emptied: its last lines say why a worker ended."""


def main(arguments: Sequence[str]) -> int:
    """Work on the one folder named; the exit code."""
    if len(arguments) != 1:
        print("usage: python -m gspo_lab.running.worker FOLDER", file=sys.stderr)
        return Exit.REFUSED
    path = Path(arguments[0]).resolve()
    folder: RunFolder | StartFolder = (
        RunFolder(path) if RunFolder(path).is_declared else StartFolder(path)
    )
    if isinstance(folder, StartFolder) and not folder.has_request:
        print(
            f"no {RUN} in {path}: a worker is started on a run's folder, runs/STUDY/ARM/sSEED",
            file=sys.stderr,
        )
        return Exit.REFUSED
    guard_output(folder.log)
    stop = StopSignal(os.environ.get(CONDUCTOR))
    for number in STOP_SIGNALS:
        ends = number == signal.SIGTERM and ENDED_BY_TERM in os.environ
        signal.signal(number, signal.SIG_DFL if ends else stop.on_signal)
    signal.pthread_sigmask(
        signal.SIG_UNBLOCK, STOP_SIGNALS
    )  # a forked worker is not to miss one that came before
    try:
        with folder.exclusive_lock(f"another worker is at work in {path}"):
            return (
                make_start(folder, stop) if isinstance(folder, StartFolder) else train(folder, stop)
            )
    except InUse as error:
        print(error, file=sys.stderr)
        return Exit.OCCUPIED
    except (LabError, OSError) as error:
        message = refused(error) if isinstance(error, OSError) else error
        if message is None:
            raise
        print("\n".join((str(message), *message.details)), file=sys.stderr)
        return Exit.CRASHED if isinstance(message, Crashed) else Exit.REFUSED


def guard_output(log: Path) -> None:
    """Drop this process's output if it cannot be written, and keep `log` short if the output is
    appended to it.

    The size that other processes add to it is checked at this process's next write.
    """
    sys.stdout = _text_output(1, log)
    sys.stderr = _text_output(2, log)


def _text_output(descriptor: int, log: Path) -> io.TextIOWrapper:
    output: Any = _Output(descriptor, log)
    return io.TextIOWrapper(output, encoding="utf-8", errors="backslashreplace", write_through=True)


class _Output(io.RawIOBase):
    """Drops what cannot be written, and empties a log that has grown too long."""

    def __init__(self, descriptor: int, log: Path) -> None:
        self._descriptor = descriptor
        self._bounded = False
        with suppress(OSError):
            self._bounded = os.path.samestat(os.fstat(descriptor), log.stat())

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with suppress(OSError):
            if self._bounded and os.fstat(self._descriptor).st_size + len(data) > MOST_LOG_BYTES:
                os.ftruncate(self._descriptor, 0)
                os.write(
                    self._descriptor,
                    b"(what was said before is left out: the log had become too long)\n",
                )
            os.write(self._descriptor, data[:MOST_LOG_BYTES])
        return len(data)


class StopSignal:
    """True once a signal has asked this worker to stop, or once the conductor that started it is
    gone.

    A worker whose conductor was killed would else train on unseen, and block the next conductor of
    its study.
    """

    def __init__(self, conductor: OptionalText) -> None:
        self._conductor = conductor
        self._signals = 0

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """A signal came: the first asks, the second ends the process at once."""
        self._signals += 1
        if self._signals > 1:
            os._exit(128 + number)

    def __call__(self) -> bool:
        """Whether it is to stop after this step."""
        orphaned = self._conductor is not None and str(os.getppid()) != self._conductor
        return self._signals > 0 or orphaned


class JournalSink:
    """A sink that passes everything on to the journal and knows how many steps are complete.

    It adds the run, its declaration, reference ranges and starting files to an engine's `started`.
    Its own `finished` seals the journal and the trained model, which every engine of the package
    leaves.
    """

    def __init__(self, folder: RunFolder, run: Run, journal: Journal, steps: int) -> None:
        self._folder = folder
        self._run = run
        self._journal = journal
        self.steps = steps

    def write(self, records: Sequence[Record]) -> None:
        """Write records to the journal, and count steps."""
        records = [self._with_identity(record) for record in records]
        self._journal.write(records)
        for record in records:
            if isinstance(record, StepRecord):
                self.steps = record.step + 1
            elif isinstance(record, RunStatus):
                if record.state == STARTED:
                    self._require_steps_before(record.step)
                self.steps = record.step

    def _with_identity(self, record: Record) -> Record:
        """The record; a `started` with the run's identity, its reference ranges and start."""
        if not isinstance(record, RunStatus) or record.state != STARTED:
            return record
        started = replace(record, run=self._run.id, declaration=self._run.declaration)
        if record.facts is None:
            return started
        start = None if self._run.warm_start is None else sums_digest(Path(self._run.warm_start))
        files = {} if start is None else {"start": start}
        bands = {rule: list(band) for rule, band in self._run.reference_bands.items()}
        return replace(started, facts={**record.facts, "reference_bands": bands, **files})

    def _require_steps_before(self, step: int) -> None:
        """LabError if the journal lacks a step before the one at which the run is taken up."""
        recorded = self._folder.records(StepRecord.kind) if step else ()
        if missing_steps := set(range(step)) - {record.get("step") for record in recorded}:
            raise LabError(
                f"{self._folder.journal} lacks step {min(missing_steps)} though the run has come to"
                f" step {step}; delete the folder {self._folder.path} to make the run again"
            )

    def _require_place(self) -> None:
        """LabError if the run's folder was moved or deleted while the run was at work.

        Its journal is then elsewhere, and its model where the folder was.
        """
        if not self._journal.is_in_place():
            raise LabError(
                f"{self._folder.path} was moved or deleted while the run was at work: start the"
                " study where its folder is now, and the run resumes from its last checkpoint"
            )

    def write_progress(self, state: State, message: OptionalText = None) -> None:
        """Write where the run now stands."""
        sealed = {}
        if state is State.FINISHED:
            self._require_place()
            saves_model = self._run.settings.engine.name in ENGINES
            if saves_model and not self._folder.final.is_dir():
                raise LabError(
                    f"{self._folder.final} is missing though the run came to its end: start the"
                    " study again, and the run resumes from its last checkpoint"
                )
            sealed = {**seal(self._folder.journal), "model": sums_digest(self._folder.final)}
        self.write(
            [RunStatus(state=state, step=self.steps, at=time.time(), message=message, **sealed)]
        )


def train(folder: RunFolder, stop: StopSignal) -> int:
    """Train the run of `folder` from its last checkpoint to its end or waiting point, and journal
    its last status.
    """
    run = folder.run()
    status = folder.status()
    if status.finished:
        folder.drop_resume()  # a kill may have come between the last word and this
        return Exit.FINISHED
    if run.origin is not None:
        raise LabError(
            f"{run.id} was recorded by {run.origin.recorder}, and cannot be gone on with here"
        )

    def arrived() -> bool:
        return run.until is not None and run.until < run.settings.steps and sink.steps >= run.until

    folder.enter(Phase.STARTING)
    with ExitStack() as stack:
        journal = stack.enter_context(folder.append())
        stack.callback(folder.enter, None)
        sink = JournalSink(folder, run, journal, status.steps)
        try:
            if run.settings.upcycled is not None:
                from gspo_lab.training.models.upcycle import ensure_mixture  # imports torch

                ensure_mixture(run.settings, Path(run.base))
            complete = make_engine(run).train(run, sink, folder.path, lambda: stop() or arrived())
        except Exception as error:
            reported = refused(error) if isinstance(error, OSError) else error
            message = f"{type(error).__name__}: {error}".partition("\n")[0]
            if isinstance(reported, LabError):
                message = " | ".join((str(reported), *reported.details))
            with suppress(OSError):  # the disk may be full
                sink.write_progress(State.FAILED, message)
            raise
        sink.write_progress(State.FINISHED if complete else State.STOPPED)
    if complete:
        folder.drop_resume()
    return Exit.FINISHED if complete or arrived() else Exit.STOPPED


class Stopped(Exception):
    """Asked to stop in the middle of a warm start, which is then made again from its beginning."""


def make_start(folder: StartFolder, stop: StopSignal) -> int:
    """Make the warm start that `folder` asks for; its progress and its result are
    written there."""
    from gspo_lab.study.start_tables import WarmStart
    from gspo_lab.tasks import build_task
    from gspo_lab.training.models.warm_start import warm_start

    try:
        request = folder.request()
        settings = WarmStart.model_validate(request["warm_start"])
        model = request["model"]
        seed = int(request["seed"])
        base = Path(request["base"])
        cache = Path(request["cache"])
        name = request["task"]["name"]
        options = dict(request["task"]["options"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LabError(
            f"{folder.path / WARM_START} is damaged ({error}): start the study again, which"
            " writes it"
        ) from error
    task = build_task(name, options, base)
    written = 0.0

    def progress(step: int, *_: object) -> None:
        nonlocal written
        if stop():
            raise Stopped
        if time.monotonic() - written > 0.5:
            written = time.monotonic()
            folder.write_progress(step, settings.steps)

    try:
        model_folder = warm_start(model, task, settings, seed, cache, progress=progress)
    except Stopped:
        return Exit.STOPPED
    folder.finish(model_folder)
    return Exit.FINISHED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
