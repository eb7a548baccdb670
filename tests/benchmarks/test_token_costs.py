import pytest
from tiny_benchmark import TINY

from benchmarks.token_costs import TokenCosts, token_costs


def test_costs_are_told_in_microseconds():
    text = TokenCosts(rollout=2e-6, score=0.5e-6, update=1e-3).table()

    assert ["2.0 µs", "0.5 µs", "1000.0 µs"] == [
        line.split("|")[2].strip() for line in text.splitlines()[2:]
    ]


@pytest.mark.wide
@pytest.mark.filterwarnings("ignore")  # TRL's import warns about other libraries
def test_every_part_takes_time():
    found = token_costs(TINY, num_trees=2)

    assert min(found.rollout, found.score, found.update) > 0.0
