"""A Ray cluster on this machine: a head without places, and nodes with one place each."""

import os
import signal
import warnings
from collections.abc import Callable
from typing import Any

from gspo_lab.common.plain_data import JsonObject

SHARED = {"node_ip_address": "127.0.0.2", "object_store_memory": 80 << 20}
"""What all nodes are given: the loopback interface and few MB.

The machine's address would replace 127.0.0.1.
"""


def patiently(start: Callable[[], Any]) -> Any:
    """What `start` returns, tried again if a busy machine is slow.

    Ray's own limit for a start is 30 seconds.
    """
    for _ in range(5):
        try:
            return start()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
    return start()


class RayNodes:
    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster()
        self._nodes: JsonObject = {}
        self.begin()
        self.address: str = self._cluster.address

    @property
    def on(self) -> str:
        return f"ray:{self.address}"

    def begin(self, **where: Any) -> None:
        """A head, and two nodes."""
        head = {**SHARED, **where, "num_cpus": 0, "include_dashboard": False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own
            patiently(lambda: self._cluster.add_node(**head))
        for _ in range(2):
            self.add()

    def add(self) -> None:
        node = patiently(lambda: self._cluster.add_node(wait=False, num_cpus=1, **SHARED))
        self._nodes[node.node_id] = node

    def lose(self, node: str, *processes: int) -> None:
        """A machine dies: its raylet, and whatever ran there."""
        (lost,) = [name for name in self._nodes if name.startswith(node)]
        self._cluster.worker_nodes.remove(self._nodes[lost])
        _end(self._nodes.pop(lost))
        for process in processes:
            os.kill(process, signal.SIGKILL)

    def lose_all(self) -> None:
        """The head dies, and all nodes."""
        for node in list(self._nodes):
            self.lose(node)
        _end(self._cluster.head_node)
        self._cluster.head_node = None

    def begin_anew(self) -> None:
        """Another cluster, at the same address; it knows nothing of the former one."""
        self.begin(gcs_server_port=int(self.address.rpartition(":")[2]))

    def close(self) -> None:
        self._cluster.shutdown()


def _end(node: Any) -> None:
    for infos in node.all_processes.values():
        for info in infos:
            info.process.kill()
