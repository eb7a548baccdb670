import time
from contextlib import contextmanager

import pytest
import torch

from benchmarks import timing
from benchmarks.timing import Effort, Way, costs, threads


def test_ways_take_turns():
    order = []
    ways = [Way("one", lambda: order.append(1), 3), Way("two", lambda: order.append(2), 2)]
    costs(ways, Effort(threads=1, has_one_thread=False))

    assert [1, 2, 1, 2, 1] == order


def test_a_cost_is_the_median_of_one_unit():
    pauses = iter([0.04, 0.0, 0.02])
    (cost,) = costs(
        [Way("pause", lambda: time.sleep(next(pauses)), 3, units=2)],
        Effort(threads=2, has_one_thread=False),
    )

    assert cost.wall_s == pytest.approx(0.01, abs=5e-3)
    assert (cost.cpu_s, cost.repetitions) == (None, 3)


def test_processor_time_is_taken_at_one_thread():
    seen = []
    (cost,) = costs([Way("a", lambda: seen.append(torch.get_num_threads()), 1)], Effort(threads=2))

    assert [2, 1] == seen
    assert cost.cpu_s is not None


def test_waiting_is_no_processor_time():
    (cost,) = costs([Way("pause", lambda: time.sleep(0.05), 1)], Effort(threads=1))

    assert cost.wall_s >= 0.05
    assert cost.cpu_s is not None
    assert cost.cpu_s < 0.04


def test_the_number_of_threads_is_put_back():
    before = torch.get_num_threads()
    with threads(before + 1):
        assert before + 1 == torch.get_num_threads()

    assert before == torch.get_num_threads()


def test_what_others_do_is_not_given_the_memory_that_we_keep(monkeypatch):
    order = []

    @contextmanager
    def told():
        order.append("theirs begins")
        yield
        order.append("theirs ends")

    monkeypatch.setattr(timing, "default_allocator", told)
    ways = [
        Way("ours", lambda: order.append("ours"), 1),
        Way("others", lambda: order.append("others"), 1, is_ours=False),
    ]
    costs(ways, Effort(threads=1, has_one_thread=False))

    assert ["ours", "theirs begins", "others", "theirs ends"] == order


def test_ours_is_warm_again_before_it_is_timed():
    order = []
    ways = [
        Way("ours", lambda: order.append("ours"), 2),
        Way("others", lambda: order.append("others"), 1, is_ours=False),
    ]
    (ours, _) = costs(ways, Effort(threads=1, has_one_thread=False))

    assert ["ours", "others", "ours", "ours"] == order
    assert ours.repetitions == 2
