"""Two real Ray nodes of one core each on the loopback, in a process of their own.

``python -m benchmarks.ray_nodes`` starts them and prints their address; the line ``kill`` on its
standard input kills the second one as ``kill -9`` does, and they end with the input.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import psutil

from astra_parts.executors.on_ray import LOOPBACK, SETTINGS

ROOT = Path(__file__).resolve().parent.parent
KILLED = "killed"
# Found dead soon, rather than after the half minute that a slow network may need.
SOON = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 4,
}


class Nodes:
    """The process that holds the nodes, seen from the one that uses them.

    Attributes:
        address: Of the cluster, for the option ``address`` of the executor.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.ray_nodes"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self._line_with(":")

    def __enter__(self) -> Self:
        """Itself; both nodes are there."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends them."""
        self._process.communicate(timeout=60)

    def kill_one(self) -> None:
        """Kills the second node with its workers, and returns when they are gone."""
        self._process.stdin.write("kill\n")  # type: ignore[union-attr]
        self._process.stdin.flush()  # type: ignore[union-attr]
        self._line_with(KILLED)

    def processes(self) -> list[psutil.Process]:
        """All processes of both nodes, workers included."""
        found: list[psutil.Process] = psutil.Process(self._process.pid).children(recursive=True)
        return found

    def _line_with(self, word: str) -> str:
        for line in self._process.stdout:  # type: ignore[union-attr]
            if word in line:
                return line.strip()
        msg = f"Ray's nodes must say '{word}', got the end of their output"
        raise RuntimeError(msg)


def main() -> None:
    """Says the address once both nodes are there, and ``killed`` once one is not."""
    os.environ.update(SETTINGS)
    from ray.cluster_utils import Cluster

    common = {
        "node_ip_address": LOOPBACK,
        "num_cpus": 1,
        "object_store_memory": 80 * 2**20,
        "include_dashboard": False,
    }
    cluster = Cluster(initialize_head=True, head_node_args={**common, "_system_config": SOON})
    second = cluster.add_node(**common)
    print(cluster.address, flush=True)
    for line in sys.stdin:
        if line.strip() == "kill":
            _kill(second)
            cluster.remove_node(second, allow_graceful=False)
            print(KILLED, flush=True)
    cluster.shutdown()


def _kill(node: Any) -> None:
    """Sends SIGKILL to all processes of a node and to their children."""
    heads = [own.process.pid for all_own in node.all_processes.values() for own in all_own]
    found = [psutil.Process(pid) for pid in heads if psutil.pid_exists(pid)]
    for process in [*found, *(child for own in found for child in own.children(recursive=True))]:
        process.send_signal(signal.SIGKILL)


if __name__ == "__main__":
    main()
