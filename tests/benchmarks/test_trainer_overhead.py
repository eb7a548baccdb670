import time
from contextlib import contextmanager

import pytest

from benchmarks.trainer_overhead import Stopwatch


def busy(seconds):
    """Computes for some processor time."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_a_call_inside_another_is_counted_once():
    watch = Stopwatch()
    inner = watch.timed("inner", lambda: busy(0.05))
    outer = watch.timed("outer", lambda: (busy(0.02), inner()))
    start = time.process_time()
    outer()
    total = time.process_time() - start

    assert total == pytest.approx(sum(watch.seconds.values()), abs=5e-3)
    assert watch.seconds["inner"] == pytest.approx(0.05, abs=1e-2)
    assert watch.seconds["outer"] == pytest.approx(0.02, abs=1e-2)


def test_entering_a_context_is_counted_and_its_body_is_not():
    @contextmanager
    def slow_to_enter(seconds):
        busy(seconds)
        yield "entered"

    watch = Stopwatch()
    with watch.timed_entry("entry", slow_to_enter)(0.03) as value:
        busy(0.05)

    assert value == "entered"
    assert watch.seconds["entry"] == pytest.approx(0.03, abs=1e-2)
