import time

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
