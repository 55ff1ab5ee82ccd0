"""A Ray cluster on this machine: a head without places, and nodes with one place each."""

import os
import signal
import warnings
from collections.abc import Callable
from typing import Any

SHARED = {"node_ip_address": "127.0.0.2", "object_store_memory": 80 << 20}
"""What all nodes are given: the loopback interface (127.0.0.1 would be replaced by the machine's address), few MB."""


def patiently(start: Callable[[], Any]) -> Any:
    """What `start` returns, tried again where a busy machine does not start it within Ray's own 30 seconds."""
    for _ in range(5):
        try:
            return start()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
    return start()


class RayNodes:
    def __init__(self, nodes: int = 2) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own
            from ray.cluster_utils import Cluster

            head = {**SHARED, "num_cpus": 0, "include_dashboard": False}
            self._cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args=head))
        self.address: str = self._cluster.address
        self._nodes: dict[str, Any] = {}
        for _ in range(nodes):
            self.add()

    @property
    def on(self) -> str:
        return f"ray:{self.address}"

    def add(self) -> None:
        node = patiently(lambda: self._cluster.add_node(wait=False, num_cpus=1, **SHARED))
        self._nodes[node.node_id] = node

    def lose(self, node: str, *processes: int) -> None:
        """A machine dies: its raylet, and whatever ran there."""
        (lost,) = [one for name, one in self._nodes.items() if name.startswith(node)]
        for infos in lost.all_processes.values():
            for info in infos:
                info.process.kill()
        for process in processes:
            os.kill(process, signal.SIGKILL)
        del self._nodes[lost.node_id]
        self._cluster.worker_nodes.remove(lost)

    def close(self) -> None:
        self._cluster.shutdown()
