"""Workers on a Ray cluster: one detached, named actor per run, which starts the worker on its node.

    conductor ── RayCluster ──pipe── driver ── Ray ── actor: Keeper ── worker
        └─────────────── the run's folder, which all nodes share ─────────┘

The driver (`ray_driver`) is a separate process, because Ray ends a process whose cluster is away
for a minute. Actors outlive it, and a new driver finds them by their names. When a node dies, Ray
starts the actor on another node, and the worker resumes from the checkpoint.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from gspo_lab.common.errors import LabError, require_package
from gspo_lab.common.plain_data import JsonMapping, JsonObject, OptionalFloat, OptionalInt
from gspo_lab.common.states import State
from gspo_lab.common.text import visible
from gspo_lab.recording.runfolder import WorkFolder
from gspo_lab.running.launch import ray_driver
from gspo_lab.running.launch.base import CORE, GPU, Slot, slots_on
from gspo_lab.running.launch.remote_workers import KeeperStatus, RemoteLaunch, RemoteWorker

NAME = "ray"
AUTO = "auto"
PROBE_SECONDS = 3.0
GREETING_SECONDS = 90.0
"""Longest wait for Ray's first answer, which comes within seconds; `probe` has excluded a closed
port.
"""
SILENT_SECONDS = 15.0
DEAF_SECONDS = 120.0
"""Silence of the driver after which the cluster counts as lost, and after which another driver
starts.
"""
RECONNECT_SECONDS = 5.0
FORWARDED = ("GSPO_LAB_", "HF_", "PYTHONPATH", "TRANSFORMERS_")
"""Prefixes of the environment variables that a worker gets from the conductor."""


class RayCluster:
    """The launcher `ray`.

    `jobs`: actors at once; None: as many as the nodes hold. LabError if `address` is closed.
    """

    def __init__(
        self,
        jobs: OptionalInt = None,
        *,
        address: str = AUTO,
        cpus: float = 1,
        gpus: OptionalFloat = None,
        resources: Mapping[str, float] | None = None,
        retries: int = 3,
    ) -> None:
        self._jobs = jobs
        self._address = (os.environ.get("RAY_ADDRESS") or AUTO) if address == AUTO else address
        self._cpus = cpus
        self._gpus = gpus
        self._resources = dict(resources or {})
        self._retries = retries
        self._environment: Mapping[str, str] = {}
        self._starts: list[tuple[RemoteLaunch, JsonObject]] = []
        self._driver: _Driver | None = None
        self._connected = 0.0

    def slots(self, device: str) -> list[Slot]:
        """As many slots as runs fit on the nodes. LabError if no node can hold a run."""
        nodes: list[dict[str, float]] = self._greeting()["nodes"]
        gpus = self._gpus
        if gpus is None:
            gpus = 1.0 if device != "cpu" and any(node.get("GPU") for node in nodes) else 0.0
        if device.startswith("cuda") and not gpus:
            raise LabError(
                f"device = '{device}', but no node of {self._cluster_name} has a GPU for Ray; use"
                " device = 'cpu' or 'auto'"
            )
        self._gpus = gpus = 0.0 if device == "cpu" else gpus
        per_run = {"CPU": self._cpus, "GPU": gpus, **self._resources}
        needed = {name: amount for name, amount in per_run.items() if amount}
        places = sum(
            min((int(node.get(name, 0) / amount) for name, amount in needed.items()), default=1)
            for node in nodes
        )
        if not places:
            has = "; ".join(sorted({_amounts(node, needed) for node in nodes})) or "no nodes"
            raise LabError(
                f"no node of {self._cluster_name} can hold a run, which asks for"
                f" {_amounts(needed, needed)}: it has {has}"
            )
        count = places if self._jobs is None else self._jobs
        slots = slots_on(
            GPU if gpus else CORE, [str(index) for index in range(count)], count, self._cluster_name
        )
        self._environment = slots[0].environment
        return slots

    def start(self, folder: Path, slot: Slot) -> RemoteWorker:
        """Create an actor; Ray chooses its node."""
        return self._follow(RemoteLaunch(WorkFolder(folder), f"{NAME}-{uuid.uuid4().hex[:12]}"))

    def find_worker(self, folder: Path) -> RemoteWorker | None:
        """The actor that the folder names, if Ray knows it."""
        launch = RemoteLaunch.find_active(
            WorkFolder(folder), NAME, lambda name: name in self._greeting()["actors"]
        )
        return None if launch is None else self._follow(launch)

    def _follow(self, launch: RemoteLaunch) -> RemoteWorker:
        forwarded = {key: value for key, value in os.environ.items() if key.startswith(FORWARDED)}
        order = {
            "do": "start",
            "name": launch.name,
            "folder": str(launch.folder.path.resolve()),
            "environment": {**forwarded, **self._environment},
            "cwd": str(Path.cwd()),
            "options": {
                "num_cpus": self._cpus,
                "num_gpus": self._gpus or 0,
                "resources": self._resources,
                "max_restarts": self._retries,
            },
        }
        process = RemoteWorker(launch, self, self._cluster_name)
        self._starts.append((launch, order))
        self._connection().order(order)
        return process

    def status(self, name: str) -> KeeperStatus:
        """The last state from the driver."""
        driver = self._connection()
        if driver.silent_seconds > SILENT_SECONDS or driver.ended:
            return KeeperStatus(State.LOST, f"{self._cluster_name}, which does not answer")
        status = driver.statuses.get(name)
        return KeeperStatus(State.QUEUED, self._cluster_name) if status is None else status

    def stop(self, name: str) -> None:
        """Stop the worker, or take the actor out of Ray's queue."""
        self._connection().order({"do": "stop", "name": name})

    def kill(self, name: str) -> None:
        """End the actor with its worker."""
        self._connection().order({"do": "kill", "name": name})

    @property
    def _cluster_name(self) -> str:
        return "the Ray cluster" + (f" at {self._address}" if self._address != AUTO else "")

    def _greeting(self) -> JsonObject:
        return self._connection().wait_until_ready(self._cluster_name)

    def _connection(self) -> "_Driver":
        """The driver.

        A new one if it has gone or is silent; it gets the orders of unfinished runs again.
        """
        if self._driver is None:
            require_package(NAME, NAME, "--on ray")
            if self._address == AUTO:
                probe_recorded(
                    Path(os.environ.get("RAY_TMPDIR") or "/tmp") / "ray" / "ray_current_cluster"
                )
            else:
                probe(self._address)
            self._driver = _Driver(self._address)
            self._connected = time.monotonic()
            self._address = self._driver.wait_until_ready(self._cluster_name)["address"]
            return self._driver
        gone = self._driver.ended or self._driver.silent_seconds > DEAF_SECONDS
        if gone and time.monotonic() - self._connected > RECONNECT_SECONDS and _open(self._address):
            self._driver.close()
            self._driver = _Driver(self._address)
            self._connected = time.monotonic()
            self._starts = [(launch, order) for launch, order in self._starts if launch.record()]
            for _, order in self._starts:
                self._driver.order(order)
        return self._driver


def probe(address: str) -> None:
    """LabError if nobody listens at `address`: Ray would wait for minutes without a message."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise LabError(
            f"--on ray:{address}: the address of a Ray cluster is HOST:PORT, that of its head, such"
            " as 10.0.0.1:6379"
        )
    if not _open(address):
        raise LabError(
            f"nobody listens at {address}: start Ray there (ray start --head), or correct --on"
            " ray:HOST:PORT"
        )


def probe_recorded(file: Path) -> None:
    """LabError if `file`, where Ray keeps the address of this machine's cluster, names a closed
    address.
    """
    address = file.read_text().strip() if file.is_file() else ""
    if address and not _open(address):
        raise LabError(
            f"--on ray: nobody listens at {address}, which {file} names: delete that file if its"
            " cluster has gone, start a new one (ray start --head), or name another one, --on"
            " ray:HOST:PORT"
        )


def _open(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_SECONDS).close()
    except (OSError, ValueError):
        return False
    return True


def _amounts(has: Mapping[str, float], names: Mapping[str, float]) -> str:
    return ", ".join(f"{has.get(name, 0):g} {name}" for name in names)


class _Driver:
    """The driver's process: orders go in, and states of actors come out, one JSON line each."""

    def __init__(self, address: str) -> None:
        self.statuses: dict[str, KeeperStatus] = {}
        self.greeting: JsonObject = {}
        self._last_message = time.monotonic()
        self.greeted = threading.Event()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", ray_driver.__name__, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            process_group=0,  # Ctrl-C is for the conductor alone
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders = self._process.stdin
        self.close = weakref.finalize(self, _close, self._process, self._errors)
        threading.Thread(
            target=_listen, args=(weakref.ref(self), self._process.stdout), daemon=True
        ).start()

    @property
    def silent_seconds(self) -> float:
        return time.monotonic() - self._last_message

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def order(self, order: JsonMapping) -> None:
        """Send an order without waiting for it."""
        with suppress(OSError):  # it has ended: the next driver gets the order again
            self._orders.write(json.dumps(order) + "\n")
            self._orders.flush()

    def wait_until_ready(self, cluster: str) -> JsonObject:
        """Wait for the driver's first message. LabError if Ray refuses or does not answer."""
        if not self.greeted.wait(PROBE_SECONDS):
            print(
                visible(f"gspo-lab: waiting for {cluster}, at most {GREETING_SECONDS:.0f} s"),
                file=sys.stderr,
                flush=True,
            )
            self.greeted.wait(GREETING_SECONDS - PROBE_SECONDS)
        if "error" in self.greeting or not self.greeting:
            silence = self._error_text() if self.ended else f"no answer in {GREETING_SECONDS:.0f} s"
            why = self.greeting.get("error") or silence
            self.close()
            if (
                "Could not find any running Ray instance" in why
            ):  # Ray goes on with an option of its own commands
                raise LabError(
                    "--on ray: no Ray cluster runs on this machine: start one (ray start --head),"
                    " or name one, --on ray:HOST:PORT"
                )
            raise LabError(f"{cluster} cannot be used: {why}")
        return self.greeting

    def hear(self, line: str) -> None:
        message = json.loads(line)
        self._last_message = time.monotonic()
        if "seen" in message:
            self.statuses = {
                name: KeeperStatus(None if state is None else State(state), place)
                for name, (state, place) in message["seen"].items()
            }
        else:
            self.greeting = message
            self.greeted.set()

    def _error_text(self) -> str:
        self._errors.seek(0)
        lines = [
            line
            for line in self._errors.read().decode(errors="replace").splitlines()
            if line.strip()
        ]
        return lines[-1].strip() if lines else f"its driver ended with {self._process.returncode}"


def _listen(driver: "weakref.ref[_Driver]", lines: IO[str]) -> None:
    with lines:
        for line in lines:
            if (target := driver()) is None:
                return
            target.hear(line)
            del target
    if (target := driver()) is not None:
        target.greeted.set()


def _close(process: "subprocess.Popen[str]", errors: IO[bytes]) -> None:
    """Let the driver finish its last orders. Its actors go on."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(PROBE_SECONDS)
    process.kill()
    process.wait()
    errors.close()
