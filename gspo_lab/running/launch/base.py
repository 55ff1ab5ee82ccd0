"""The interface of launchers: a launcher has slots for workers, and starts a worker on a folder.

The command is always `python -m gspo_lab.running.worker FOLDER`, and its results do not depend on
the launcher. A launcher may start a worker again: it resumes from the folder's checkpoint.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import OptionalText
from gspo_lab.common.states import State
from gspo_lab.recording.runfolder import WorkFolder

CONDUCTOR = "GSPO_LAB_CONDUCTOR"
"""Environment variable: the process id of the conductor; after its end nobody waits for the worker.
"""

ENDED_BY_TERM = "GSPO_LAB_ENDED_BY_TERM"
"""Environment variable of a worker that SIGTERM ends at once. A cluster that ends a job sends
SIGTERM to all its processes, also to a grader's programs: records that the worker writes after that
could be wrong."""

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""The first signal asks a worker to finish its step and save; a second one ends it at once. With
ENDED_BY_TERM only SIGINT asks."""

SAME_EVERYWHERE = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # cuBLAS is deterministic only with a fixed workspace
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
}
"""The environment of every worker: records must not depend on the launcher."""

CORE = "core"
GPU = "gpu"
"""The kinds of devices that built-in launchers know."""


def start_worker(folder: WorkFolder, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start a folder's worker here in a new process group, its output appended to the folder's
    log.
    """
    with folder.log.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "gspo_lab.running.worker", str(folder.path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment, CONDUCTOR: str(os.getpid())},
            process_group=0,
        )


@dataclass(frozen=True)
class Slot:
    """A place for one worker at a time: a device and the worker's environment.

    Slots with equal devices share it.
    """

    kind: str
    """The kind of device: "core", "gpu", or a name of the launcher."""
    index: str
    """Its index among the host's devices of this kind."""
    environment: Mapping[str, str]
    host: OptionalText = None
    """The machine; None is this one."""

    @property
    def name(self) -> str:
        """The slot as text."""
        return f"{self.kind} {self.index}" + (f" of {self.host}" if self.host else "")


def slots_on(kind: str, places: Sequence[str], jobs: int, host: OptionalText = None) -> list[Slot]:
    """A slot per job, on the places in turn.

    A slot for CPU cores hides all GPUs. LabError without a job.
    """
    if jobs < 1:
        raise LabError(f"jobs = {jobs}: at least one worker is needed")
    environment = SAME_EVERYWHERE | ({} if kind == GPU else {"CUDA_VISIBLE_DEVICES": ""})
    return [Slot(kind, places[index % len(places)], environment, host) for index in range(jobs)]


class WorkerProcess(Protocol):
    """A requested worker. Its exit code is one of `states.Exit`."""

    @property
    def state(self) -> State:
        """The state while `poll` gives None: RUNNING, QUEUED or LOST.

        QUEUED waits for a slot. LOST is unknown, and may start again."""
        ...

    @property
    def place(self) -> str:
        """Its last known place, as text; may change."""
        ...

    def poll(self) -> int | None:
        """The exit code; -N: signal N ended it; `Exit.LOST`: given up; None: not ended."""
        ...

    def stop(self) -> None:
        """Ask it to finish its step, save and exit; a queued worker leaves the queue as STOPPED."""
        ...

    def kill(self) -> None:
        """Kill it and its child processes."""
        ...


class Launcher(Protocol):
    """Has slots for workers, and starts workers on them."""

    def slots(self, device: str) -> list[Slot]:
        """The slots for workers on `device` (auto, cpu or cuda). LabError if there are none."""
        ...

    def start(self, folder: Path, slot: Slot) -> WorkerProcess:
        """Start a worker on `folder`, its output appended to `folder/log.txt`."""
        ...

    def find_worker(self, folder: Path) -> WorkerProcess | None:
        """The worker on `folder` that an earlier conductor started and that still runs, if any."""
        ...
