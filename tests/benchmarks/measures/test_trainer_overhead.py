import time
from contextlib import contextmanager
from dataclasses import replace

import pytest

from benchmarks.measures.trainer_overhead import Stopwatch, report
from benchmarks.shapes import GPT2_SMALL
from benchmarks.timing import Effort


class Clock:
    """Moves only when told to: what a machine does besides is not counted."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now

    def busy(self, seconds):
        """Computes for so long."""
        self.now += seconds


def test_a_call_inside_another_is_counted_once():
    clock = Clock()
    watch = Stopwatch(clock)
    inner = watch.timed("inner", lambda: clock.busy(5))
    watch.timed("outer", lambda: (clock.busy(2), inner()))()

    assert {"inner": 5, "outer": 2} == watch.seconds


def test_entering_a_context_is_counted_and_its_body_is_not():
    @contextmanager
    def slow_to_enter(seconds):
        clock.busy(seconds)
        yield "entered"

    clock = Clock()
    watch = Stopwatch(clock)
    with watch.timed_entry("entry", slow_to_enter)(3) as value:
        clock.busy(5)

    assert value == "entered"
    assert {"entry": 3} == watch.seconds


def test_processor_time_is_counted_where_no_clock_is_given():
    watch = Stopwatch()
    watch.timed("pause", lambda: time.sleep(0.05))()

    # Waiting takes none, however busy the machine is.
    assert 0.0 <= watch.seconds["pause"] < 0.05


@pytest.mark.wide
def test_a_large_vocabulary_is_measured_to_the_end():
    """Random weights of so many words are far from the reference: no limit may end the run."""
    figures = report(replace(GPT2_SMALL, num_layers=1), Effort()).figures

    assert all(figure.value > 0 for figure in figures)
