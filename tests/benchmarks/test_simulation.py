import pytest
from each_row import each_row

pytest.importorskip("simpy", reason="needs simpy, of the extra scaling")

from benchmarks.simulation import Costs, Faults, simulated

EVEN = Costs(shard_s=1.0)


@each_row(("workers", "seconds"), [(1, 12.0), (2, 6.0), (5, 3.0), (12, 1.0)])
def test_even_shards_take_as_many_rounds_as_there_must_be(workers, seconds):
    assert seconds == pytest.approx(simulated(EVEN, workers, num_shards=12).seconds)


def test_weights_are_sent_to_one_worker_after_the_other():
    costs = Costs(shard_s=1.0, sync_s_per_mib=0.01, mib=50.0)

    # The second begins after half a second more, and has as many shards.
    assert 1.0 + 6.0 == pytest.approx(simulated(costs, 2, num_shards=12).seconds)


def test_the_driver_ends_the_scaling():
    costs = Costs(shard_s=1.0, hand_over_s=0.1)
    few, many = (simulated(costs, workers, num_shards=400) for workers in (4, 100))

    assert few.seconds == pytest.approx(400 / 4 * 1.1, rel=0.02)
    # Ten shards a second, however many work.
    assert many.seconds == pytest.approx(400 * 0.1 + 1.0, rel=0.02)
    assert many.driver_share > 0.95
    assert few.driver_share < 0.5


def test_a_death_costs_its_shard_and_a_start():
    faults = Faults(losses_per_hour=300.0)
    costs = Costs(shard_s=1.0, start_s=5.0)
    plain, faulty = (simulated(costs, 4, num_shards=200, faults=own) for own in (None, faults))

    assert 0 == plain.num_lost < faulty.num_lost
    lost_s = faulty.seconds - plain.seconds
    assert 5.0 * faulty.num_lost / 4 * 0.5 < lost_s < 6.0 * faulty.num_lost / 4 + 6.0


def test_stragglers_cost_less_where_idle_workers_get_their_shards_too():
    slow = {"straggler_share": 0.05, "straggler_factor": 50.0}
    patient, impatient = (
        simulated(EVEN, 8, num_shards=80, faults=Faults(**slow, again_after=own))
        for own in (0.0, 4.0)
    )

    assert 0 == patient.num_again < impatient.num_again
    assert impatient.seconds < 0.8 * patient.seconds


def test_the_same_seed_gives_the_same_outcome():
    costs, faults = Costs(shard_s=1.0, spread=0.5), Faults(losses_per_hour=60.0)
    outcomes = [
        simulated(costs, 3, num_shards=30, faults=faults, seed=seed).seconds for seed in (0, 0, 1)
    ]

    assert outcomes[0] == outcomes[1] != outcomes[2]
