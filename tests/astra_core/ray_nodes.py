"""Two real Ray nodes of one core on the loopback; ``kill`` on standard input ends the second."""

import os
import sys

from astra_core.executors.on_ray import LOOPBACK, SETTINGS

# Found dead soon, rather than after the half minute that a slow network may need.
SOON = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 4,
}


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
    print(cluster.address, flush=True)  # noqa: T201 - read by the test
    for line in sys.stdin:
        if line.strip() == "kill":
            cluster.remove_node(second, allow_graceful=False)
            print("killed", flush=True)  # noqa: T201
    cluster.shutdown()


if __name__ == "__main__":
    main()
