import importlib.util
import subprocess
import sys

import pytest
from each_row import each_row

from benchmarks.measures.nodes import Killed, Round, cost_of_the_kill, efficiency


def rows(text):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]


@each_row(
    ("both", "at_work", "useful", "share"),
    [
        # Ideal: half the time, and no processor time beside the shards'.
        (Round(5.0, 10.0, [1.25] * 8, ()), 1.0, 1.0, 1.0),
        # Workers wait a fifth of the time.
        (Round(6.25, 10.0, [1.25] * 8, ()), 0.8, 1.0, 0.8),
        # Ray's processes need a tenth of the processor.
        (Round(5.0, 10.0 / 0.9, [1.25] * 8, ()), 1.0, 0.9, 0.9),
        # A neighbour slows workers down: the clock tells of it, processor time does not.
        (Round(10.0, 10.0, [2.5] * 8, ()), 1.0, 1.0, 1.0),
    ],
)
def test_efficiency_is_what_waiting_and_other_work_leave(both, at_work, useful, share):
    alone = Round(10.0, 10.0, [1.25] * 8, ())
    text, found = efficiency([(alone, both)] * 3)
    row = rows(text)[0]

    assert share == pytest.approx(found)
    assert [f"{at_work:.1%}", f"{useful:.1%}", f"{share:.1%}"] == row[4:7]
    assert f"{5.0 / both.seconds:.1%}" == row[7]
    assert ("EXCEEDED" in text) is (share < 0.85)


def test_a_kill_costs_what_the_other_node_does_not_need():
    killed = Killed(Round(12.0, 9.0, [1.0] * 8, ()), killed_s=2.0, num_left=6, num_lost=1)

    assert ["2.0 s", "6", "1", "12.0 s", "8.0 s", "4.0 s"] == [
        value for _, value in rows(cost_of_the_kill(killed))
    ]


@pytest.mark.wide
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra ray")
def test_two_nodes_give_what_one_process_gives_though_one_is_killed():
    # In a process of its own, as users run it.
    options = ["--shape", "small", "--shards", "8", "--prompts", "2", "--rounds", "1"]
    command = [sys.executable, "-m", "benchmarks", "nodes", *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=500)

    assert done.returncode in {0, 1}  # of shards this small, handing over is no small part
    assert "rounds whose graphs differ from the first's: 0 of 3" in done.stdout
    assert "| workers that died with a shard | 1 |" in done.stdout
