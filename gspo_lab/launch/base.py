"""What a launcher is: it knows the places where a worker can run, and starts one for a folder.

The command is always the same, `python -m gspo_lab.worker FOLDER`; who starts it, and where, makes no difference to
what it does. A launcher may start it again: a worker goes on from what the folder holds.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gspo_lab.errors import LabError
from gspo_lab.runfolder import WorkFolder
from gspo_lab.states import State

CONDUCTOR = "GSPO_LAB_CONDUCTOR"
"""Environment variable with the process id whose end means that nobody waits for the worker any more."""

ENDED_BY_TERM = "GSPO_LAB_ENDED_BY_TERM"
"""Environment variable of a worker that SIGTERM ends at once. A cluster sends SIGTERM to every process of a job that it
ends, also to the programs that a grader has just started: what the worker recorded after that could be wrong."""

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""The first that a worker hears asks it to finish its step and save; another one ends it at once. With ENDED_BY_TERM
only SIGINT asks."""

SAME_EVERYWHERE = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # cuBLAS is deterministic only with a fixed workspace
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
}
"""What every worker has in its environment, whoever starts it: records must not depend on that."""


def at_least_one(jobs: int) -> int:
    """How many workers at once. LabError for none."""
    if jobs < 1:
        raise LabError(f"jobs = {jobs}: at least one worker is needed")
    return jobs


def start_worker(folder: WorkFolder, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start the worker of a folder here, in a process group of its own, its output appended to the folder's log; it
    ends with this process."""
    with folder.log.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "gspo_lab.worker", str(folder.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment, CONDUCTOR: str(os.getpid())},
            process_group=0,
        )


@dataclass(frozen=True)
class Slot:
    """A place for one worker at a time: a device, and what the worker's environment needs there.

    Slots that say the same device share it.
    """

    kind: str
    """What a worker has there: "core", "gpu", or a launcher's own word."""
    index: str
    """Which one of its kind on its host."""
    environment: Mapping[str, str]
    host: str | None = None
    """The machine; None is this one."""

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.kind} {self.index}" + (f" of {self.host}" if self.host else "")


class Process(Protocol):
    """A worker that has been asked for. Its exit code is one of `states.Exit`."""

    @property
    def state(self) -> State:
        """While `poll` gives None: RUNNING; QUEUED where it waits for its place; LOST where nobody knows what became of
        it, and the launcher still hopes or will start it again."""
        ...

    @property
    def place(self) -> str:
        """Where it is, or waits, or was last seen, for people; it may change as often as the state."""
        ...

    def poll(self) -> int | None:
        """The exit code; -N where signal N ended it, `Exit.LOST` where it is given up; None until then."""
        ...

    def stop(self) -> None:
        """Ask it to finish its step, save and leave; one that is queued leaves the queue as STOPPED."""
        ...

    def kill(self) -> None:
        """End it and whatever it started, now."""
        ...


class Launcher(Protocol):
    """Knows places for workers, and starts workers there."""

    def slots(self, device: str) -> list[Slot]:
        """The places there are for workers on `device` (auto, cpu or cuda). Raises LabError where there are none."""
        ...

    def start(self, folder: Path, slot: Slot) -> Process:
        """Start a worker on `folder`, its output appended to `folder/log.txt`."""
        ...

    def find(self, folder: Path) -> Process | None:
        """The worker on `folder` that an earlier conductor asked for and that has outlived it; None where there is
        none."""
        ...
