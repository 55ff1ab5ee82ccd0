"""Workers on this machine: one per GPU, or one per CPU core with one thread each.

A study's runs are independent, so whole runs in parallel keep all cores busy where threads inside a small model
cannot; and with one thread everywhere, a run's numbers do not depend on how many runs there are beside it.
"""

import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from gspo_lab.errors import LabError
from gspo_lab.launch.base import SAME_EVERYWHERE, Process, Slot, at_least_one, start_worker
from gspo_lab.launch.forked import Forkserver
from gspo_lab.machine import cores
from gspo_lab.runfolder import WorkFolder
from gspo_lab.states import State

CORE = "core"


@dataclass(frozen=True)
class LocalPool:
    """The local launcher. `jobs`: how many workers at once; None: GSPO_LAB_JOBS, or else one per GPU or core."""

    jobs: int | None = None
    _server: Forkserver = field(default_factory=Forkserver, init=False, repr=False, compare=False)

    def slots(self, device: str) -> list[Slot]:
        """The places for workers here. More jobs than GPUs share them in turn; raises LabError for cuda without one."""
        gpus = visible_gpus() if device in ("auto", "cuda") else []
        if device == "cuda" and not gpus:
            raise LabError(
                "device = 'cuda', but there is no GPU here that torch could use; use device = 'cpu' or 'auto'"
            )
        kind, places = ("gpu", gpus) if on_gpu(device) else (CORE, [str(core) for core in range(cores())])
        count = at_least_one(self.jobs if self.jobs is not None else _jobs_wanted(len(places)))
        chosen = [places[i % len(places)] for i in range(count)]
        return [
            Slot(kind, place, {**SAME_EVERYWHERE, "CUDA_VISIBLE_DEVICES": place if kind == "gpu" else ""})
            for place in chosen
        ]

    def start(self, folder: Path, slot: Slot) -> Process:
        """Start a worker in a process group of its own, so that a terminal's Ctrl-C reaches only the conductor; on a
        core of Linux it is forked from a warm process, if that is there to hear it."""
        if slot.kind == CORE and hasattr(os, "pidfd_open") and (forked := self._server.start(folder, slot)):
            return forked
        return LocalProcess(start_worker(WorkFolder(folder), slot.environment), slot.name)

    def find(self, folder: Path) -> None:
        """Workers here end with their conductor."""


@dataclass(frozen=True)
class LocalProcess:
    """A worker on this machine, the first of a process group of its own."""

    process: "subprocess.Popen[bytes]"
    place: str
    state: ClassVar[State] = State.RUNNING

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self.process.pid

    def poll(self) -> int | None:
        """Its exit code; None while it works. What it has started ends with it."""
        if self.process.returncode is None and hasattr(os, "waitid"):  # macOS has it from Python 3.13 on
            ended = os.WEXITED | os.WNOHANG | os.WNOWAIT  # not yet waited for, so that no other process can have its id
            if os.waitid(os.P_PID, self.pid, ended):
                self.kill()
        return self.process.poll()

    def stop(self) -> None:
        """Ask it to finish its step, save and leave."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """End it and all that it has started, and wait until it is gone."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def visible_gpus() -> list[str]:
    """What CUDA_VISIBLE_DEVICES may name, one GPU or MIG slice each; found without importing torch."""
    present = _gpus_present()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None or not present:
        return present
    return [name for entry in chosen.split(",") if (name := entry.strip()) not in ("", "-1")]


def on_gpu(device: str) -> bool:
    """Whether runs with that `device` compute on a GPU here."""
    return device != "cpu" and bool(visible_gpus()) and (device == "cuda" or torch_knows_cuda())


def gpu_memory() -> dict[str, float]:
    """Bytes of each whole GPU by its number; empty where nvidia-smi does not tell, and without MIG slices."""
    if not shutil.which("nvidia-smi"):
        return {}
    asked = ["nvidia-smi", "--query-gpu=index,memory.total", "--format=csv,noheader,nounits"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    found = re.findall(r"^(\d+), (\d+)$", told, re.MULTILINE)
    return {index: 2.0**20 * int(mebibytes) for index, mebibytes in found}


def _gpus_present() -> list[str]:
    if shutil.which("nvidia-smi"):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
        slices = re.findall(r"^\s+MIG .*\(UUID: (\S+)\)", listed.stdout, re.MULTILINE)
        gpus = re.findall(r"^GPU (\d+):", listed.stdout, re.MULTILINE)
        if slices or gpus:
            return slices or gpus
    proc = Path("/proc/driver/nvidia/gpus")
    return [str(i) for i in range(len(list(proc.iterdir())))] if proc.is_dir() else []


def torch_knows_cuda() -> bool:
    """Whether the installed torch was built with CUDA, by its version file: importing it takes seconds."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    version = Path(spec.origin).with_name("version.py")
    return version.is_file() and re.search(r"^cuda\b.*=\s*'", version.read_text(), re.MULTILINE) is not None


def _jobs_wanted(default: int) -> int:
    text = os.environ.get("GSPO_LAB_JOBS", "").strip()
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise LabError(f"GSPO_LAB_JOBS={text}: a whole number of workers is needed") from None
