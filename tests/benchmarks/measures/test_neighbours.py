import os
import subprocess
import sys

import pytest
from each_row import each_row

from benchmarks.measures import neighbours
from benchmarks.measures.neighbours import (
    DEFAULTS,
    LATER,
    LIBGOMP,
    STAGE,
    WAITS,
    Case,
    Spent,
    figures,
)
from tasks.machine.thread_waits import FREE, SHARED


def case(quiet, busy):
    return Case([Spent(wall, 1.0) for wall in quiet], [Spent(wall, 2.0) for wall in busy])


@each_row(
    ("ours", "others", "kept"),
    [
        (case([2.0, 1.0, 9.0], [4.0, 4.0, 4.0]), case([2.0], [20.0]), [True, True]),
        # Beside a neighbour it takes more than 2.2 times as long.
        (case([2.0], [5.0]), case([2.0], [20.0]), [False, True]),
        # On a quiet machine it loses a tenth.
        (case([2.2], [4.0]), case([2.0], [20.0]), [True, False]),
    ],
)
def test_medians_are_held_to_what_is_promised(ours, others, kept):
    found = figures({STAGE: ours, LATER: case([1.0], [99.0]), LIBGOMP: others})

    assert kept == [figure.is_kept for figure in found if figure.limit is not None]


def test_a_row_has_both_times_and_their_ratio():
    assert ("a", "2.00", "6.00", "3.00", "1.00", "2.00") == case([2.0], [6.0]).row("a")


def test_the_cases_differ_in_how_threads_wait():
    assert FREE.keys() == SHARED.keys() == DEFAULTS.keys()
    for name in FREE:
        assert int(SHARED[name]) < int(FREE[name]) < int(DEFAULTS[name])


@pytest.mark.wide
def test_benchmarks_wait_as_stages_do():
    code = "import benchmarks, os, sys; print(*(os.environ[n] for n in sys.argv[1:]))"
    free = {name: value for name, value in os.environ.items() if name not in FREE}
    command = [sys.executable, "-c", code, *FREE]
    told = subprocess.run(command, env=free, capture_output=True, text=True, check=True).stdout

    assert told.split() in ([*FREE.values()], [*SHARED.values()])


@pytest.mark.wide
def test_quiet_and_busy_rollouts_are_timed_in_both_cases():
    cases = neighbours.measured(num_threads=1, repetitions=1)

    assert list(WAITS) == list(cases)
    for found in cases.values():
        assert [1, 1] == [len(found.quiet), len(found.busy)]
        assert all(spent.wall_s > 0.0 < spent.cpu_s for spent in (*found.quiet, *found.busy))
