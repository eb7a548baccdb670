import importlib.util

import psutil
import pytest

from benchmarks.ray_nodes import Nodes

pytestmark = [
    pytest.mark.wide,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra ray"),
]


def named(processes, name):
    return [own for own in processes if own.is_running() and name in " ".join(own.cmdline())]


@pytest.mark.wide
def test_a_killed_node_is_gone_with_its_processes_and_the_other_lives():
    with Nodes() as nodes:
        both = named(nodes.processes(), "raylet/raylet")
        nodes.kill_one()
        left = named(nodes.processes(), "raylet/raylet")

    assert (2, 1) == (len(both), len(left))
    assert left[0] in both
    psutil.wait_procs(both, timeout=60)
    assert [] == [own for own in both if own.is_running()]
