"""The launcher `ray` inside Ray: its driver, `python -m gspo_lab.running.launch.ray_driver
ADDRESS`, and its actor on a node.

A JSON line on stdin is an order {"do": start, stop or kill, "name": ...}; a line on stdout is the
greeting or the states of the actors. A failure of the cluster ends the process; the conductor
starts another driver.
"""

import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gspo_lab.common.plain_data import JsonMapping, JsonObject
from gspo_lab.common.registry import one_line_error
from gspo_lab.common.states import State
from gspo_lab.recording.runfolder import WorkFolder
from gspo_lab.running.launch.remote_workers import RemoteLaunch, WorkerMonitor

NAMESPACE = "gspo-lab"
TELL_SECONDS = 1.0
"""Time between two questions to an actor, and the longest wait for its reaction."""
SILENT_SECONDS = 15.0
"""Silence after which a running actor counts as lost."""
LEAVE_SECONDS = 10
"""Time for the last orders after stdin closes; then the driver ends even if Ray still waits."""


class RunActor:
    """On a node: the keeper of one run. The actor ends with it."""

    def __init__(self, folder: str, name: str, environment: Mapping[str, str], cwd: str) -> None:
        import ray

        if Path(cwd).is_dir():
            os.chdir(cwd)  # a study's modules are searched there
        context = ray.get_runtime_context()
        self._place = f"{ray.util.get_node_ip_address()} (Ray node {context.get_node_id()[:6]})"
        self._launch = RemoteLaunch(WorkFolder(Path(folder)), name)
        self._keeper = WorkerMonitor(self._launch, environment)
        threading.Thread(target=self._keep, args=(context.current_actor,), daemon=True).start()

    def _keep(self, me: Any) -> None:
        import ray

        self._launch.note(code=self._keeper.run_job())
        ray.kill(me)  # frees its resources even without a conductor

    def place(self) -> str:
        """Its node as text."""
        return self._place

    def stop(self) -> None:
        """Ask the worker to finish its step, save and exit."""
        self._keeper.stop()

    def kill(self) -> None:
        """Kill the worker."""
        self._keeper.kill()


@dataclass
class _Followed:
    """An actor and its last known state."""

    actor: Any
    state: State | None = State.QUEUED
    place: str = ""
    question: Any = None
    at: float = 0.0

    def ask(self) -> None:
        if (
            self.question is None
            and time.monotonic() - self.at >= TELL_SECONDS
            and self.state is not None
        ):
            self.question = self.actor.place.remote()
            self.at = time.monotonic()

    def hear(self, name: str, answered: bool) -> None:
        """Update the state by an answer or its absence."""
        import ray

        if answered:
            try:
                self.place = ray.get(self.question)
                self.state = State.RUNNING
            except ray.exceptions.RayError as error:
                try:
                    ray.get_actor(name, NAMESPACE)
                    self.state = State.LOST
                except ValueError:
                    self.state = None
                    self.place = self.place or one_line_error(error)
            self.question = None
        elif self.state is State.RUNNING and time.monotonic() - self.at > SILENT_SECONDS:
            self.state = State.LOST


def serve(address: str) -> None:
    """The driver: execute the orders on stdin and report states on stdout, until stdin closes."""
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)  # Ray prints

        def print_line(**message: Any) -> None:
            print(json.dumps(message), file=out, flush=True)

        orders: queue.Queue[JsonObject | None] = queue.Queue()
        threading.Thread(target=_read_orders, args=(orders,), daemon=True).start()
        import ray

        try:
            ray.init(
                address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR"
            )
        except Exception as error:
            print_line(error=one_line_error(error))
            return
        print_line(
            address=ray.get_runtime_context().gcs_address,
            nodes=[node["Resources"] for node in ray.nodes() if node["Alive"]],
            actors=ray.util.list_named_actors(),
        )
        followed: dict[str, _Followed] = {}
        while True:
            with suppress(queue.Empty):
                order = orders.get(timeout=0.2)
                while order is not None:
                    _handle_order(order, followed)
                    order = orders.get_nowait()
                return
            for entry in followed.values():
                entry.ask()
            questions = [
                entry.question for entry in followed.values() if entry.question is not None
            ]
            answered = (
                ray.wait(questions, num_returns=len(questions), timeout=0.2)[0] if questions else []
            )
            for name, entry in followed.items():
                if entry.question is not None:
                    entry.hear(name, entry.question in answered)
            print_line(
                seen={
                    name: (entry.state, entry.place)
                    for name, entry in followed.items()
                    if entry.place
                }
            )


def _read_orders(orders: "queue.Queue[JsonObject | None]") -> None:
    for line in sys.stdin:
        orders.put(json.loads(line))
    signal.alarm(
        LEAVE_SECONDS
    )  # a signal: Ray may wait for a cluster in code that no thread can interrupt
    orders.put(None)


def _handle_order(order: JsonMapping, followed: dict[str, _Followed]) -> None:
    import ray

    name = order["name"]
    if order["do"] == "start":
        identity = {
            "name": name,
            "namespace": NAMESPACE,
            "lifetime": "detached",
            "get_if_exists": True,
        }
        actor = ray.remote(RunActor).options(**identity, **order["options"])
        followed[name] = _Followed(
            actor.remote(order["folder"], name, order["environment"], order["cwd"])
        )
        return
    entry = followed[name]
    if entry.state is State.RUNNING:
        answer = entry.actor.stop.remote() if order["do"] == "stop" else entry.actor.kill.remote()
        with suppress(ray.exceptions.RayError):  # it has ended by itself
            ray.get(answer, timeout=TELL_SECONDS)
    elif entry.state is not None:
        ray.kill(entry.actor)


if __name__ == "__main__":
    serve(sys.argv[1])
