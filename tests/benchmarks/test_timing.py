import time
from contextlib import contextmanager

import torch

from benchmarks import timing
from benchmarks.timing import Effort, Way, costs, threads


def test_ways_take_turns():
    order = []
    ways = [Way("one", lambda: order.append(1), 3), Way("two", lambda: order.append(2), 2)]
    costs(ways, Effort(threads=1, has_one_thread=False))

    assert [1, 2, 1, 2, 1] == order


def test_a_cost_is_the_median_of_one_unit(monkeypatch):
    # The clock moves by what a call says, whatever else the machine does.
    now, calls = [0.0], iter([4.0, 0.0, 2.0])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def call():
        now[0] += next(calls)

    effort = Effort(threads=2, has_one_thread=False)
    (cost,) = costs([Way("pause", call, 3, units=2)], effort)

    assert (1.0, None, 3) == (cost.wall_s, cost.cpu_s, cost.repetitions)


def test_processor_time_is_taken_at_one_thread():
    seen = []
    (cost,) = costs([Way("a", lambda: seen.append(torch.get_num_threads()), 1)], Effort(threads=2))

    assert [2, 1] == seen
    assert cost.cpu_s is not None


def test_waiting_is_no_processor_time():
    (cost,) = costs([Way("pause", lambda: time.sleep(0.05), 1)], Effort(threads=1))

    # However busy the machine is, a call that waits takes next to no processor time itself.
    assert cost.wall_s >= 0.05
    assert cost.cpu_s is not None
    assert cost.cpu_s < 0.05


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
