"""One of the engine's processes, started by torchrun. Rank 0 prints records and waits until they
are on the disk; it ends with the worker."""

import json
import os
import queue
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import record as crashes_are_told

from gspo_lab.common.errors import LabError
from gspo_lab.common.states import Exit, State
from gspo_lab.recording.journal import to_dict
from gspo_lab.recording.records import Record, RunStatus
from gspo_lab.recording.runfolder import RunFolder
from gspo_lab.training.engines.base import Sink
from gspo_lab.training.engines.child import STOP, WRITTEN


class Worker:
    """Rank 0's line to the worker: a sink, and who hears that an end is asked for."""

    def __init__(self) -> None:
        self.stop_asked = False
        self._written: queue.SimpleQueue[None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def write(self, records: Sequence[Record]) -> None:
        """Print records, and wait until the worker has them on the disk."""
        if records:
            self._print(records)
            self._written.get()

    def fail(self, message: str) -> None:
        """Say that something has gone wrong that people can mend."""
        self._print([RunStatus(state=State.FAILED, step=0, message=message)])

    def _print(self, records: Sequence[Record]) -> None:
        # A line of its own, whatever was printed before, in one piece.
        sys.stdout.write("\n" + json.dumps([to_dict(record) for record in records]) + "\n")
        sys.stdout.flush()

    def _listen(self) -> None:
        for line in sys.stdin:
            if line.strip() == WRITTEN:
                self._written.put(None)
            self.stop_asked |= line.strip() == STOP
        os._exit(Exit.STOPPED)  # the worker is gone, and another may be about to take the run up


class NullSink:
    """The sink of the other ranks, which have nothing to say."""

    def write(self, records: Sequence[Record]) -> None:
        """Nothing to write."""
        assert not records


@crashes_are_told
def main(folder: str, processes: str, microbatches: str, sampling: str) -> int:
    """Train the run of a folder; the exit code."""
    run = RunFolder(Path(folder)).run()
    worker = Worker() if os.environ["RANK"] == "0" else None
    sink: Sink = worker or NullSink()
    try:
        from gspo_lab.training.engines.trl.trainer import train

        def stop() -> bool:
            return worker is not None and worker.stop_asked

        train(run, sink, Path(folder), stop, int(processes), int(microbatches), sampling)
    except LabError as error:
        if worker is None:
            raise
        worker.fail(" | ".join((str(error), *error.details)))
        return Exit.REFUSED
    return Exit.FINISHED


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
