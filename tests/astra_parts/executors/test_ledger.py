import json
from pathlib import Path

import pytest
from each_row import each_row

from astra_core.errors import LostProcessError
from astra_parts.executors.ledger import Ledger, WorkersOptions


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def ledger_of(shards, clock=None, **options):
    return Ledger(shards, WorkersOptions(**options), clock=clock or Clock())


def test_results_are_in_the_order_of_the_shards():
    ledger = ledger_of("abc")
    numbers = {worker: ledger.take(worker) for worker in ("x", "y", "z")}
    for worker in ("z", "x", "y"):
        assert not ledger.is_complete
        ledger.put(worker, numbers[worker])

    assert ledger.is_complete
    assert [0, 1, 2] == ledger.results()


VECTORS = Path(__file__).parents[2] / "vectors" / "nexrl_deterministic_order.json"


@each_row("case", json.loads(VECTORS.read_text("utf-8"))["cases"])
def test_runs_of_a_prompt_are_in_order_however_they_arrive(case):
    arrived = list(zip(case["group_id"], case["run_id"], strict=True))
    asked = sorted(arrived)  # as a sampler asks: prompt by prompt, run by run
    ledger = ledger_of(asked)
    worker_of = {asked[ledger.take(worker)]: worker for worker in range(len(asked))}
    for at, run in enumerate(arrived):
        ledger.put(worker_of[run], at)

    for column in ("x", "global_token_num", "group_id"):
        found = [case[column][at] for at in ledger.results()]
        assert case[f"expected_{column}"] == found


def test_the_shard_of_a_dead_worker_is_the_next():
    ledger = ledger_of("abc")
    assert (0, 1) == (ledger.take("x"), ledger.take("y"))
    ledger.lose("x", "killed")

    assert 0 == ledger.take("z")
    assert 1 == ledger.num_lost


def test_an_idle_worker_that_dies_costs_nothing():
    ledger = ledger_of("a")
    ledger.lose("x", "killed")

    assert 0 == ledger.num_lost
    assert 0 == ledger.take("y")


def test_a_shard_that_ends_every_worker_ends_the_work():
    ledger = ledger_of("ab", max_losses=2)
    ledger.take("x")
    ledger.lose("x", "ended by SIGKILL")
    ledger.take("x")

    with pytest.raises(LostProcessError, match=r"shard 0 \(ended by SIGKILL\); give each less"):
        ledger.lose("x", "ended by SIGKILL")


@each_row(("factor", "again"), [(2.0, 1), (20.0, None)])
def test_a_shard_that_takes_too_long_is_given_to_an_idle_worker_too(factor, again):
    clock = Clock()
    ledger = ledger_of("abc", clock, straggler_factor=factor)
    assert (0, 1) == (ledger.take("x"), ledger.take("y"))
    clock.now = 2.0
    ledger.put("x", "A")
    assert 2 == ledger.take("x")
    ledger.put("x", "C")
    assert ledger.take("x") is None
    clock.now = 9.0

    assert again == ledger.take("x")
    assert (again is not None) == ledger.num_issued_again


def test_the_first_result_of_a_shard_counts_and_no_third_worker_gets_it():
    clock = Clock()
    ledger = ledger_of("ab", clock, straggler_factor=2.0)
    ledger.take("x"), ledger.take("y")
    ledger.put("x", "A")
    clock.now = 9.0
    assert 1 == ledger.take("x")
    assert ledger.take("z") is None

    assert ledger.put("x", "first")
    assert not ledger.put("y", "second")
    assert ["A", "first"] == ledger.results()


def test_the_death_of_one_of_two_that_have_a_shard_gives_it_to_no_third():
    clock = Clock()
    ledger = ledger_of("ab", clock, straggler_factor=2.0)
    ledger.take("x"), ledger.take("y")
    ledger.put("x", "A")
    clock.now = 9.0
    ledger.take("x")
    ledger.lose("y", "killed")

    clock.now = 9.5
    assert ledger.take("z") is None
    ledger.put("x", "B")
    assert ledger.is_complete


def test_a_refused_shard_waits_again_and_is_no_loss():
    ledger = ledger_of("ab")
    ledger.take("x")
    ledger.back("x")

    assert 0 == ledger.take("y")
    assert 0 == ledger.num_lost
