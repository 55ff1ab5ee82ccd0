"""A launcher as a cluster's would be.

Jobs wait in a queue, run on other hosts, and get lost now and then.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path

from gspo_lab.common.plain_data import OptionalInt
from gspo_lab.common.states import Exit, State
from gspo_lab.running.launch.base import Slot, WorkerProcess
from gspo_lab.running.launch.local import LocalPool

QUEUED = [State.QUEUED] * 2
LOST = [State.LOST] * 2


@dataclass
class Job:
    """Looked at, it says what it is told to say, then starts its worker and says what that says."""

    folder: Path
    slot: Slot
    pool: LocalPool
    says: Iterator[State]
    gives_up: bool
    worker: WorkerProcess | None = None
    stopped: bool = False

    @property
    def state(self) -> State:
        return State.RUNNING if self.worker else next(self.says)

    @property
    def place(self) -> str:
        return self.slot.name

    def poll(self) -> OptionalInt:
        if self.worker:
            return self.worker.poll()
        if self.stopped:
            return Exit.STOPPED
        if (state := next(self.says)) is State.RUNNING:
            if self.gives_up:
                return Exit.LOST
            self.worker = self.pool.start(self.folder, self.slot)
        else:
            self.says = chain([state], self.says)
        return None

    def stop(self) -> None:
        self.stopped = True
        if self.worker:
            self.worker.stop()

    def kill(self) -> None:
        self.stop()
        if self.worker:
            self.worker.kill()


@dataclass
class SlowQueue:
    """Every job is queued, then lost, then queued anew on another host.

    The job of run b/s0 is given up instead.
    """

    jobs: OptionalInt = None
    gives_up: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        self.pool = LocalPool(self.jobs)

    def slots(self, device: str) -> list[Slot]:
        return [
            Slot("node", str(i), entry.environment, host="far")
            for i, entry in enumerate(self.pool.slots(device))
        ]

    def start(self, folder: Path, slot: Slot) -> Job:
        gives_up = bool(self.gives_up) and folder.match(self.gives_up)
        return Job(folder, slot, self.pool, chain(QUEUED, LOST, repeat(State.RUNNING)), gives_up)

    def find_worker(self, folder: Path) -> None:
        pass


class Unlucky(SlowQueue):
    def __init__(self, jobs: OptionalInt) -> None:
        super().__init__(jobs, gives_up="b/s0")


class NoLauncher:
    def __init__(self, jobs: OptionalInt) -> None:
        pass


class BrokenAtOnce(SlowQueue):
    def __init__(self, jobs: OptionalInt) -> None:
        raise ZeroDivisionError("no queue")


class BrokenListing(SlowQueue):
    def slots(self, device: str) -> list[Slot]:
        raise KeyError(device)
