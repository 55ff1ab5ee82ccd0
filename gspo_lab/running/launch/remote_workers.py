"""Workers on other hosts. The conductor and the worker's host exchange messages by files in the
run's folder.

    FOLDER/launches/NAME.json           by the conductor: the worker's last state and place, and
                                        whether it must stop
    FOLDER/launches/NAME.attempt.json   by the keeper: the attempt and its host, at the end the
                                        exit code

A keeper is a process with a `WorkerMonitor`: it starts the worker on its host and writes its exit
code. The conductor follows both by a `RemoteWorker`. It asks the cluster only whether the keeper
waits, runs, or has gone: the folder keeps everything else.
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

from gspo_lab.common.atomic_files import read_json, write_json
from gspo_lab.common.plain_data import JsonMapping, JsonObject, OptionalFloat, OptionalInt
from gspo_lab.common.states import Exit, State
from gspo_lab.recording.runfolder import WorkFolder
from gspo_lab.running.launch.base import ENDED_BY_TERM, start_worker

SETTLE_SECONDS = 20.0
"""The longest delay between a keeper's end and its exit code on the shared disk; also the longest
wait for a killed keeper whose cluster does not answer."""
LOOK_SECONDS = 0.5
"""Time between two reads of a folder, which may be on a slow disk."""


@dataclass(frozen=True)
class RemoteLaunch:
    """The two files of one requested worker. `name` is unique in the folder."""

    folder: WorkFolder
    name: str

    @staticmethod
    def find_active(
        folder: WorkFolder, launcher: str, is_alive: Callable[[str], bool]
    ) -> "RemoteLaunch | None":
        """A launcher's latest worker, if its cluster says that it `is_alive`; the files of an ended
        one are deleted.
        """
        launch = next(
            (path for path in _latest_first(folder) if path.name.startswith(f"{launcher}-")), None
        )
        if launch is None or (
            is_alive(launch.name) and not launch.to_stop and launch.attempt().get("code") is None
        ):
            return launch
        launch.delete_record()
        return None

    @property
    def _record(self) -> Path:
        return self.folder.launches / f"{self.name}.json"

    @property
    def _attempt(self) -> Path:
        return self.folder.launches / f"{self.name}.attempt.json"

    def record(self) -> JsonObject:
        """{"state", "place", "at", "stop"}; empty if no conductor waits for this worker."""
        return read_json(self._record) or {}

    def write_state(self, state: State, place: str) -> None:
        """Write the worker's state and place."""
        write_json(
            self._record, {"stop": self.to_stop, "state": state, "place": place, "at": time.time()}
        )

    def ask_to_stop(self) -> None:
        """Mark the worker as not to be started again."""
        write_json(self._record, self.record() | {"stop": True})

    @property
    def to_stop(self) -> bool:
        """Whether the conductor asked it to stop."""
        return bool(self.record().get("stop"))

    def attempt(self) -> JsonObject:
        """{"number", "host", "waits_for", "requeued", "ended", "code"}; empty before a keeper
        began.

        `requeued`: why the cluster will start the job again; `ended`: it will not start the job
        again.
        """
        return read_json(self._attempt) or {}

    def begin(self) -> None:
        """Called by the keeper: begin another attempt on this host."""
        self._write_attempt(
            {"number": 1 + self.attempt().get("number", 0), "host": os.uname().nodename}
        )

    def note(self, **fields: Any) -> None:
        """Called by the keeper: add to the present attempt."""
        self._write_attempt(self.attempt() | fields)

    def _write_attempt(self, content: JsonObject) -> None:
        if self.folder.path.is_dir():  # it may have been moved away
            write_json(self._attempt, content)

    def delete_record(self) -> None:
        """Delete both files, after the end was noted."""
        for path in (self._record, self._attempt):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # another launch has files there
            self.folder.launches.rmdir()


def latest_record(folder: WorkFolder) -> JsonObject | None:
    """The latest record of a worker whose end was not noted: "state", "place", and the time of
    both, "at".
    """
    return next(
        (record for launch in _latest_first(folder) if "state" in (record := launch.record())), None
    )


def _latest_first(folder: WorkFolder) -> list[RemoteLaunch]:
    paths = [
        path for path in folder.launches.glob("*.json") if not path.name.endswith(".attempt.json")
    ]
    paths.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    return [RemoteLaunch(folder, path.stem) for path in paths]


class WorkerMonitor:
    """Starts one worker on its host as soon as the folder is free, and returns its exit code."""

    def __init__(self, launch: RemoteLaunch, environment: Mapping[str, str] | None = None) -> None:
        self._launch = launch
        self._environment = {**(environment or {}), ENDED_BY_TERM: "1"}
        self._worker: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()
        self._killed = False
        launch.begin()

    def run_job(self) -> int:
        """Run the worker and return its exit code; STOPPED if it was stopped before it began.

        First wait while another worker holds the folder: on a lost host, or of a study with the
        same warm start.
        """
        waits_for: str | None = None
        while not (self._stopped.is_set() or self._launch.to_stop):
            process = self._launch.folder.lock_holder()
            if process != waits_for:
                waits_for = process
                self._launch.note(waits_for=process)
            if process is not None:
                self._stopped.wait(LOOK_SECONDS)
            elif (code := self._run()) != Exit.OCCUPIED:  # another worker was quicker
                return code
        return -signal.SIGKILL if self._killed else Exit.STOPPED

    def _run(self) -> int:
        self._worker = start_worker(self._launch.folder, self._environment)
        if self._stopped.is_set():  # stop() came while the worker was starting
            self._end(self._worker)
        code = self._worker.wait()
        stopped_early = code == -signal.SIGKILL and self._stopped.is_set() and not self._killed
        return Exit.STOPPED if stopped_early else code

    def stop(self) -> None:
        """Ask the worker to finish its step and save; one that has not begun is killed, it has
        nothing to save.
        """
        self._stopped.set()
        if (worker := self._worker) is not None and worker.poll() is None:
            if self._launch.folder.lock_holder():
                worker.send_signal(signal.SIGINT)
            else:
                self._end(worker)

    def kill(self) -> None:
        """Kill the worker and its child processes."""
        self._killed = True
        self._stopped.set()
        if (worker := self._worker) is not None:
            self._end(worker)

    def _end(self, worker: "subprocess.Popen[bytes]") -> None:
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)


@dataclass(frozen=True)
class KeeperStatus:
    """A keeper's state by its cluster.

    `state` None: it has gone or never existed. `cancelled`: a person ended it.
    """

    state: State | None
    place: str
    cancelled: bool = False


class Cluster(Protocol):
    """The interface to Ray and Slurm, by the names of launches."""

    def status(self, name: str) -> KeeperStatus:
        """The last known state of the launch's keeper; does not wait."""
        ...

    def stop(self, name: str) -> None:
        """Stop the worker by its keeper, or remove it from the queue."""
        ...

    def kill(self, name: str) -> None:
        """Kill the keeper and its worker."""
        ...


class RemoteWorker:
    """A worker on another host, as its conductor follows it."""

    def __init__(self, launch: RemoteLaunch, cluster: Cluster, place: str) -> None:
        self.state = State.QUEUED
        self.place = place
        self._launch = launch
        self._cluster = cluster
        self._code: OptionalInt = None
        self._killed = False
        self._looked = 0.0
        self._gone: OptionalFloat = None
        launch.write_state(self.state, place)

    def poll(self) -> OptionalInt:
        """The exit code in the folder, read every LOOK_SECONDS."""
        now = time.monotonic()
        if self._code is None and now - self._looked >= LOOK_SECONDS:
            self._looked = now
            status = self._cluster.status(self._launch.name)
            attempt = self._launch.attempt()
            self._code = attempt.get("code")
            if self._killed and self._code not in (None, Exit.FINISHED, Exit.STOPPED):
                self._code = -signal.SIGKILL  # a cluster may send other signals first
            if self._code is None:
                self._update(status, attempt, now)
            if self._code is not None:
                self._launch.delete_record()
        return self._code

    def _update(self, status: KeeperStatus, attempt: JsonMapping, now: float) -> None:
        gone = status.state is None or (status.state is State.LOST and self._killed)
        self._gone = (self._gone or now) if gone else None
        # The cluster has ended the keeper, or its job was cancelled in the queue.
        no_code_follows = bool(attempt.get("ended")) or (status.cancelled and not attempt)
        if status.state is None and self._killed:
            self._code = -signal.SIGKILL
        elif status.state is None and self._launch.to_stop:
            self._code = Exit.STOPPED
        elif self._gone is not None and (now - self._gone >= SETTLE_SECONDS or no_code_follows):
            self._code = Exit.CANCELLED if status.cancelled else Exit.LOST
        state = status.state or State.LOST
        place = status.place
        if state is State.QUEUED and self.state is not State.QUEUED and not attempt.get("requeued"):
            state = State.LOST  # it ran and waits again: its host has gone
        if state is State.QUEUED and (why := attempt.get("requeued")):
            place += f", requeued {why}"
        if state is State.RUNNING and (number := attempt.get("number", 1)) > 1:
            place += f", retry {number - 1}"
        if state is State.RUNNING and (process := attempt.get("waits_for")):
            place += f", waiting for process {process}"
        if (state, place) != (self.state, self.place):
            self.state = state
            self.place = place
            self._launch.write_state(state, place)

    def stop(self) -> None:
        """Ask it to finish its step, save and exit, and do not start it again."""
        self._launch.ask_to_stop()
        self._cluster.stop(self._launch.name)

    def kill(self) -> None:
        """Kill it and its child processes."""
        self._killed = True
        self._launch.ask_to_stop()
        self._cluster.kill(self._launch.name)
