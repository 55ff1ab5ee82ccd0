"""Workers on this machine: one per GPU, or one per CPU core with one thread each.

Parallel runs keep all cores busy, which threads inside a small model cannot. With one thread per
worker, the numbers of a run do not depend on how many others run. On Linux cores a forkserver,
which has its imports, forks the workers.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import weakref
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import ClassVar

from gspo_lab.common.cpu_count import cores
from gspo_lab.common.errors import LabError
from gspo_lab.common.plain_data import OptionalInt
from gspo_lab.common.states import Exit, State
from gspo_lab.recording.runfolder import WorkFolder
from gspo_lab.running.launch.base import CORE, GPU, Slot, WorkerProcess, slots_on, start_worker


class Forkserver:
    """The forkserver process, in the environment of a slot. It ends with this object."""

    def __init__(self, slot: Slot) -> None:
        self._orders, server_end = Pipe()
        with server_end:
            process = subprocess.Popen(
                [sys.executable, "-m", "gspo_lab.running.forkserver", str(server_end.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **slot.environment},
                pass_fds=(server_end.fileno(),),
                process_group=0,
            )
        self.gone = False
        self._number = 0
        self._codes: dict[int, int] = {}
        weakref.finalize(self, _end, self._orders, process)

    def start(self, folder: Path, slot: Slot) -> "ForkedProcess | None":
        """Order a worker on `folder`; it begins when the server has its imports. None if the server
        is gone.

        OSError if its log cannot be written.
        """
        WorkFolder(folder).log.open("ab").close()  # the server could say so nowhere
        self._number += 1
        return (
            ForkedProcess(self, self._number, slot.name)
            if self.order(self._number, folder.absolute())
            else None
        )

    def order(self, number: int, content: Path | signal.Signals | str) -> bool:
        """Send an order, an engine's name to import it; False if the server is gone."""
        try:
            self._orders.send((number, content))
        except OSError:
            self.gone = True
        return not self.gone

    def code(self, number: int, *, wait: bool = False) -> OptionalInt:
        """The exit code of a worker, LOST if the server has gone; None while it works."""
        try:
            while (wait and number not in self._codes) or self._orders.poll():
                ended, code = self._orders.recv()
                self._codes[ended] = code
        except (EOFError, OSError):
            self.gone = True
        return self._codes.get(number, Exit.LOST if self.gone else None)


def _end(orders: Connection, process: "subprocess.Popen[bytes]") -> None:
    orders.close()
    process.kill()  # it may be in the middle of importing
    process.wait()


@dataclass(frozen=True)
class ForkedProcess:
    """A worker of the forkserver, by its number."""

    server: Forkserver
    number: int
    place: str
    state: ClassVar[State] = State.RUNNING

    def poll(self) -> OptionalInt:
        """Its exit code; None while it works."""
        return self.server.code(self.number)

    def stop(self) -> None:
        """Ask it to finish its step, save and exit."""
        self.server.order(self.number, signal.SIGINT)

    def kill(self) -> None:
        """Kill it and its child processes, and wait for its end."""
        if self.server.order(self.number, signal.SIGKILL):
            self.server.code(self.number, wait=True)


@dataclass
class LocalPool:
    """The local launcher.

    `jobs`: workers at once; None: GSPO_LAB_JOBS, else one per GPU or core.
    """

    jobs: OptionalInt = None
    _server: Forkserver | None = field(default=None, init=False, repr=False, compare=False)

    def slots(self, device: str) -> list[Slot]:
        """The slots of this machine. More jobs than GPUs share GPUs. LabError for cuda without a
        GPU, and for mps on Linux.

        A single GPU of several (`cuda:1`) and any other device have one place, and hide nothing
        from their workers.
        """
        gpus = visible_gpus() if device != "cpu" else []
        if not gpus and (device.startswith("cuda") or (device, sys.platform) == ("mps", "linux")):
            raise LabError(
                f"device = '{device}', but there is no GPU here that torch could use; use device ="
                " 'cpu' or 'auto'"
            )
        if device.startswith("cuda:") and int(device[5:]) >= len(gpus):
            raise LabError(
                f"device = '{device}', but there are {len(gpus)} GPUs here, which count from cuda:0"
            )
        if device not in ("auto", "cpu", "cuda"):
            place = gpus[int(device[5:])] if device.startswith("cuda:") else device
            return slots_on(GPU, [place], self._jobs(1))
        if not on_gpu(device):
            places = [str(core) for core in range(cores())]
            return slots_on(CORE, places, self._jobs(len(places)))
        return [
            replace(slot, environment={**slot.environment, "CUDA_VISIBLE_DEVICES": slot.index})
            for slot in slots_on(GPU, gpus, self._jobs(len(gpus)))
        ]

    def _jobs(self, default: int) -> int:
        text = os.environ.get("GSPO_LAB_JOBS", "").strip()
        if self.jobs is not None or not text:
            return default if self.jobs is None else self.jobs
        try:
            return int(text)
        except ValueError:
            raise LabError(f"GSPO_LAB_JOBS={text}: a whole number of workers is needed") from None

    def prepare(self, slot: Slot, engine: str) -> None:
        """Have the forkserver import what this engine's workers need, while the caller goes on."""
        if (server := self._forkserver(slot)) is not None:
            server.order(0, engine)

    def start(self, folder: Path, slot: Slot) -> WorkerProcess:
        """Start a worker in a new process group, which a terminal's Ctrl-C does not reach."""
        server = self._forkserver(slot)
        if server is not None and (forked := server.start(folder, slot)):
            return forked
        return LocalProcess(start_worker(WorkFolder(folder), slot.environment), slot.name)

    def _forkserver(self, slot: Slot) -> Forkserver | None:
        """One for all slots of cores, whose environments are equal; None for other slots."""
        if slot.kind != CORE or not hasattr(os, "pidfd_open"):
            return None
        if self._server is None or self._server.gone:
            self._server = Forkserver(slot)
        return self._server

    def find_worker(self, folder: Path) -> None:
        """None: local workers end with their conductor."""


@dataclass(frozen=True)
class LocalProcess:
    """A worker on this machine, the leader of a process group."""

    process: "subprocess.Popen[bytes]"
    place: str
    state: ClassVar[State] = State.RUNNING

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self.process.pid

    def poll(self) -> OptionalInt:
        """Its exit code; None while it works. Its child processes end with it."""
        if self.process.returncode is None and hasattr(
            os, "waitid"
        ):  # macOS has it from Python 3.13 on
            ended = (
                os.WEXITED | os.WNOHANG | os.WNOWAIT
            )  # not yet waited for, so that no other process can have its id
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
    """The visible GPUs or MIG slices, as CUDA_VISIBLE_DEVICES names them, without importing
    torch.
    """
    present = _gpus_present()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None or not present:
        return present
    return [name for entry in chosen.split(",") if (name := entry.strip()) not in ("", "-1")]


def on_gpu(device: str) -> bool:
    """Whether runs with that `device` compute on a CUDA GPU here."""
    if not visible_gpus():
        return False
    return device.startswith("cuda") or (device == "auto" and torch_knows_cuda())


def gpu_memory() -> dict[str, float]:
    """Bytes of each GPU by its number; empty if nvidia-smi does not report them.

    MIG slices are left out.
    """
    if not shutil.which("nvidia-smi"):
        return {}
    command = ["nvidia-smi", "--query-gpu=index,memory.total", "--format=csv,noheader,nounits"]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    gpus = re.findall(r"^(\d+), (\d+)$", output, re.MULTILINE)
    return {index: 2.0**20 * int(mebibytes) for index, mebibytes in gpus}


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
    """Whether the installed torch was built with CUDA, by its version file: importing it takes
    seconds.
    """
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    version = Path(spec.origin).with_name("version.py")
    return (
        version.is_file()
        and re.search(r"^cuda\b.*=\s*'", version.read_text(), re.MULTILINE) is not None
    )
