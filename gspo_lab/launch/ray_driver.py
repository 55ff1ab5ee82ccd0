"""The launcher `ray` inside Ray: its driver, `python -m gspo_lab.launch.ray_driver ADDRESS`, and its actor on a node.

A line of JSON on stdin is an order {"do": start, stop or kill, "name": ...}; one on stdout is the greeting, or what is
seen of the actors. What goes wrong with the cluster ends the process: whoever gives the orders starts another one.
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

from gspo_lab.launch.afar import Keeper, Launch
from gspo_lab.registry import one_line_error
from gspo_lab.runfolder import WorkFolder
from gspo_lab.states import State

NAMESPACE = "gspo-lab"
TELL_SECONDS = 1.0
"""Between two questions to an actor, and the longest wait for what it does."""
SILENT_SECONDS = 15.0
"""After which an actor that was there and does not answer is said to be lost."""
LEAVE_SECONDS = 10
"""For what was ordered last, once nobody orders any more; then the driver ends, whatever Ray waits for."""


class RunActor:
    """On a node: one run's keeper. Its end is the actor's."""

    def __init__(self, folder: str, name: str, environment: Mapping[str, str], cwd: str) -> None:
        import ray

        if Path(cwd).is_dir():
            os.chdir(cwd)  # where a study's own modules are looked for
        context = ray.get_runtime_context()
        self._place = f"{ray.util.get_node_ip_address()} (Ray node {context.get_node_id()[:6]})"
        self._launch = Launch(WorkFolder(Path(folder)), name)
        self._keeper = Keeper(self._launch, environment)
        threading.Thread(target=self._keep, args=(context.current_actor,), daemon=True).start()

    def _keep(self, me: Any) -> None:
        import ray

        self._launch.note(code=self._keeper.keep())
        ray.kill(me)  # gives its place back, whether or not a conductor is there to see it

    def place(self) -> str:
        """Where it is, for people."""
        return self._place

    def stop(self) -> None:
        """Ask the worker to finish its step, save and leave."""
        self._keeper.stop()

    def kill(self) -> None:
        """End the worker now."""
        self._keeper.kill()


@dataclass
class _Followed:
    """An actor as the driver sees it."""

    actor: Any
    state: State | None = State.QUEUED
    place: str = ""
    asked: Any = None
    at: float = 0.0

    def ask(self) -> None:
        if self.asked is None and time.monotonic() - self.at >= TELL_SECONDS and self.state is not None:
            self.asked, self.at = self.actor.place.remote(), time.monotonic()

    def hear(self, name: str, answered: bool) -> None:
        """Take the answer, or the lack of one."""
        import ray

        if answered:
            try:
                self.state, self.place = State.RUNNING, ray.get(self.asked)
            except ray.exceptions.RayError as error:
                try:
                    ray.get_actor(name, NAMESPACE)
                    self.state = State.LOST
                except ValueError:
                    self.state = None
                    self.place = self.place or one_line_error(error)
            self.asked = None
        elif self.state is State.RUNNING and time.monotonic() - self.at > SILENT_SECONDS:
            self.state = State.LOST


def serve(address: str) -> None:
    """The driver: does what is ordered on stdin and tells on stdout what it sees, until nobody orders any more."""
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)  # Ray prints

        def tell(**news: Any) -> None:
            print(json.dumps(news), file=out, flush=True)

        orders: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=_read, args=(orders,), daemon=True).start()
        import ray

        try:
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
        except Exception as error:
            tell(error=one_line_error(error))
            return
        tell(
            address=ray.get_runtime_context().gcs_address,
            nodes=[node["Resources"] for node in ray.nodes() if node["Alive"]],
            actors=ray.util.list_named_actors(),
        )
        followed: dict[str, _Followed] = {}
        while True:
            with suppress(queue.Empty):
                order = orders.get(timeout=0.2)
                while order is not None:
                    _obey(order, followed)
                    order = orders.get_nowait()
                return
            for one in followed.values():
                one.ask()
            asked = [one.asked for one in followed.values() if one.asked is not None]
            answered = ray.wait(asked, num_returns=len(asked), timeout=0.2)[0] if asked else []
            for name, one in followed.items():
                if one.asked is not None:
                    one.hear(name, one.asked in answered)
            tell(seen={name: (one.state, one.place) for name, one in followed.items() if one.place})


def _read(orders: "queue.Queue[dict[str, Any] | None]") -> None:
    for line in sys.stdin:
        orders.put(json.loads(line))
    signal.alarm(LEAVE_SECONDS)  # the system's: Ray waits for a cluster that is away in code that hears of no thread
    orders.put(None)


def _obey(order: Mapping[str, Any], followed: dict[str, _Followed]) -> None:
    import ray

    name = order["name"]
    if order["do"] == "start":
        kept = {"name": name, "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True}
        actor = ray.remote(RunActor).options(**kept, **order["options"])
        followed[name] = _Followed(actor.remote(order["folder"], name, order["environment"], order["cwd"]))
        return
    one = followed[name]
    if one.state is State.RUNNING:
        done = one.actor.stop.remote() if order["do"] == "stop" else one.actor.kill.remote()
        with suppress(ray.exceptions.RayError):  # it has ended by itself
            ray.get(done, timeout=TELL_SECONDS)
    elif one.state is not None:
        ray.kill(one.actor)


if __name__ == "__main__":
    serve(sys.argv[1])
