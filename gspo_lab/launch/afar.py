"""What launchers share whose workers run on other hosts: in the run's folder each side leaves word for the other.

    FOLDER/launches/NAME.json           the conductor's: where the worker was last seen, and whether it is to stop
    FOLDER/launches/NAME.attempt.json   the keeper's: which attempt on which host, and at last the exit code

A `Keeper` starts the worker on its host and leaves its exit code; a `FarProcess` is what the conductor sees of both.
The cluster is asked only whether the keeper waits, is there, or has gone: whatever it forgets, the folder still knows.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gspo_lab.files import read_json, write_json
from gspo_lab.launch.base import ENDED_BY_TERM, start_worker
from gspo_lab.runfolder import WorkFolder
from gspo_lab.states import Exit, State

SETTLE_SECONDS = 20.0
"""For how long a keeper may have gone before the exit code that it left is seen on the shared disk; and for how long
one that is to be killed is waited for where its cluster does not answer."""
LOOK_SECONDS = 0.5
"""Between two looks at a folder, which may be far away."""


@dataclass(frozen=True)
class Launch:
    """One worker that was asked for: its two files in the run's folder. `name` is unique among those of the folder."""

    folder: WorkFolder
    name: str

    @staticmethod
    def left(folder: WorkFolder, launcher: str, there: Callable[[str], bool]) -> "Launch | None":
        """The one that a launcher has asked for last and whose end nobody has taken note of, if its cluster says that
        it is `there`; one that has ended or is about to is forgotten: what came of it stands in the folder."""
        found = [path for path in _records(folder) if path.stem.startswith(f"{launcher}-")]
        if not found:
            return None
        launch = Launch(folder, found[-1].stem)
        if there(launch.name) and not launch.to_stop and (launch.attempt() or {}).get("code") is None:
            return launch
        launch.forget()
        return None

    @property
    def _record(self) -> Path:
        return self.folder.launches / f"{self.name}.json"

    @property
    def _attempt(self) -> Path:
        return self.folder.launches / f"{self.name}.attempt.json"

    def record(self) -> dict[str, Any] | None:
        """{"state", "place", "at", "stop"}; None where nobody waits for this worker any more."""
        return read_json(self._record)

    def say(self, state: State, place: str) -> None:
        """Where the worker is, for who asks later."""
        known = self.record() or {"stop": False}
        write_json(self._record, known | {"state": state, "place": place, "at": time.time()})

    def ask_to_stop(self) -> None:
        """Not to be started again: a worker that leaves by itself then stays away."""
        write_json(self._record, (self.record() or {}) | {"stop": True})

    @property
    def to_stop(self) -> bool:
        """Whether it was asked to stop."""
        return bool((self.record() or {}).get("stop"))

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for this worker, and has not asked it to stop."""
        record = self.record()
        return record is not None and not record.get("stop")

    def attempt(self) -> dict[str, Any] | None:
        """{"number", "host", "waits_for", "requeued", "ended", "code"}; None before a keeper has begun.

        `requeued` says why the cluster will start the job again, `ended` that it has ended the job for good.
        """
        return read_json(self._attempt)

    def begin(self) -> None:
        """The keeper's: another attempt, on this host."""
        number = 1 + (self.attempt() or {"number": 0})["number"]
        self._tell({"number": number, "host": os.uname().nodename})

    def note(self, **news: Any) -> None:
        """The keeper's: more of the present attempt."""
        self._tell((self.attempt() or {}) | news)

    def _tell(self, content: dict[str, Any]) -> None:
        if self.folder.path.is_dir():  # it may have been moved away
            write_json(self._attempt, content)

    def forget(self) -> None:
        """Its end has been taken note of."""
        for path in (self._record, self._attempt):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # another one is asked for, too
            self.folder.launches.rmdir()


def whereabouts(folder: WorkFolder) -> dict[str, Any] | None:
    """The latest record of a worker that was asked for and whose end nobody has taken note of: "state", "place", and
    since when that is known, "at". What a worker leaves before anybody looks again is not in it."""
    told = [record for path in _records(folder) if "state" in (record := Launch(folder, path.stem).record() or {})]
    return told[-1] if told else None


def _records(folder: WorkFolder) -> list[Path]:
    found = [path for path in folder.launches.glob("*.json") if not path.name.endswith(".attempt.json")]
    return sorted(found, key=lambda path: path.stat().st_mtime)


class Keeper:
    """Stands beside one worker on its host: starts it as soon as the folder is free, and leaves its exit code."""

    def __init__(self, launch: Launch, environment: Mapping[str, str] | None = None) -> None:
        self._launch = launch
        self._environment = {**(environment or {}), ENDED_BY_TERM: "1"}
        self._worker: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()
        self._killed = False
        launch.begin()

    def keep(self) -> int:
        """Until the worker has ended; its exit code. STOPPED where it was to stop before it had begun.

        Another worker may still be at it, one that a lost host's lock names or one of another study that makes the same
        warm start: this one waits until it has left, and then goes on or finds everything done.
        """
        folder = self._launch.folder
        waits_for: str | None = None
        while not (self._stopped.is_set() or self._launch.to_stop):
            if other := folder.lock_holder():
                if other != waits_for:
                    self._launch.note(waits_for=other)
                waits_for = other
                self._stopped.wait(LOOK_SECONDS)
                continue
            if waits_for:
                self._launch.note(waits_for=None)
            code, waits_for = self._run(), None
            if code != Exit.OCCUPIED:  # another worker was quicker
                return code
        return -signal.SIGKILL if self._killed else Exit.STOPPED

    def _run(self) -> int:
        self._worker = start_worker(self._launch.folder, self._environment)
        if self._stopped.is_set():  # asked to just now, when there was no worker yet
            self._end(self._worker)
        code = self._worker.wait()
        stopped_early = code == -signal.SIGKILL and self._stopped.is_set() and not self._killed
        return Exit.STOPPED if stopped_early else code

    def stop(self) -> None:
        """Ask the worker to finish its step and save; one that has not begun has nothing to save, and does not hear."""
        self._stopped.set()
        if (worker := self._worker) is not None and worker.poll() is None:
            if self._launch.folder.lock_holder():
                worker.send_signal(signal.SIGINT)
            else:
                self._end(worker)

    def kill(self) -> None:
        """End the worker and whatever it started, now."""
        self._killed = True
        self._stopped.set()
        if (worker := self._worker) is not None:
            self._end(worker)

    def _end(self, worker: "subprocess.Popen[bytes]") -> None:
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Seen:
    """What a cluster says of a keeper. `state` None: it has gone, or never was. `cancelled`: somebody ended it."""

    state: State | None
    place: str
    cancelled: bool = False


class Cluster(Protocol):
    """What is asked of Ray and of Slurm, by the names of launches."""

    def seen(self, name: str) -> Seen:
        """The keeper of the launch of that name, as last heard; waits for nobody."""
        ...

    def stop(self, name: str) -> None:
        """Have its keeper stop the worker; out of the queue with it, where it waits there."""
        ...

    def kill(self, name: str) -> None:
        """End the keeper and its worker, now."""
        ...


class FarProcess:
    """A worker on another host, as the conductor sees it."""

    def __init__(self, launch: Launch, cluster: Cluster, place: str) -> None:
        self.state = State.QUEUED
        self.place = place
        self._launch = launch
        self._cluster = cluster
        self._code: int | None = None
        self._killed = False
        self._looked = 0.0
        self._gone: float | None = None
        launch.say(self.state, place)

    def poll(self) -> int | None:
        """The exit code that the keeper left; asked for anew every LOOK_SECONDS."""
        now = time.monotonic()
        if self._code is None and now - self._looked >= LOOK_SECONDS:
            self._looked = now
            seen, attempt = self._cluster.seen(self._launch.name), self._launch.attempt() or {}
            self._code = attempt.get("code")
            if self._killed and self._code not in (None, Exit.FINISHED, Exit.STOPPED):
                self._code = -signal.SIGKILL  # whatever a cluster sends before it kills
            if self._code is None:
                self._take(seen, attempt, now)
            if self._code is not None:
                self._launch.forget()
        return self._code

    def _take(self, seen: Seen, attempt: Mapping[str, Any], now: float) -> None:
        gone = seen.state is None or (seen.state is State.LOST and self._killed)
        self._gone = (self._gone or now) if gone else None
        # The cluster has ended the keeper, or its job was cancelled in the queue.
        no_code_follows = bool(attempt.get("ended")) or (seen.cancelled and not attempt)
        if seen.state is None and self._killed:
            self._code = -signal.SIGKILL
        elif seen.state is None and self._launch.to_stop:
            self._code = Exit.STOPPED
        elif self._gone is not None and (now - self._gone >= SETTLE_SECONDS or no_code_follows):
            self._code = Exit.CANCELLED if seen.cancelled else Exit.LOST
        state, place = seen.state or State.LOST, seen.place
        if state is State.QUEUED and self.state is not State.QUEUED and not attempt.get("requeued"):
            state = State.LOST  # it was at work and is to begin again: its host has gone
        if state is State.QUEUED and (why := attempt.get("requeued")):
            place += f", requeued {why}"
        if state is State.RUNNING and (number := attempt.get("number", 1)) > 1:
            place += f", retry {number - 1}"
        if state is State.RUNNING and (other := attempt.get("waits_for")):
            place += f", waiting for process {other}"
        if (state, place) != (self.state, self.place):
            self.state, self.place = state, place
            self._launch.say(state, place)

    def stop(self) -> None:
        """Ask it to finish its step, save and leave, and not to be started again."""
        self._launch.ask_to_stop()
        self._cluster.stop(self._launch.name)

    def kill(self) -> None:
        """End it and whatever it started, now."""
        self._killed = True
        self._launch.ask_to_stop()
        self._cluster.kill(self._launch.name)
