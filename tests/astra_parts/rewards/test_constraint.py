import pytest
from each_row import each_row

from astra_parts.rewards.constraint import ConstraintOptions, Multiplier


def multiplier(**changes):
    options = {"term": "reply", "at_least": 0.4, "step_size": 0.5, "initial": 1.0, **changes}
    return Multiplier(ConstraintOptions(**options))


def test_it_grows_below_the_level_and_falls_above_it():
    held = multiplier()
    found = []
    for mean in (0.2, 0.2, 0.9):
        held.move(mean)
        found.append(held.weight)

    # Half of 0.2 twice, then half of minus 0.5.
    assert [1.1, 1.2, 0.95] == pytest.approx(found)
    assert 0.3 == pytest.approx(held.shortfall(0.1))


def test_it_stays_between_nothing_and_the_largest():
    for mean, expected in ((5.0, 0.0), (-90.0, 3.0)):
        held = multiplier(largest=3.0)
        held.move(mean)
        assert expected == held.weight


@each_row("change", [{"at_least": 0.9}, {"step_size": 1.0}, {"initial": 2.0}, {"largest": 0.5}])
def test_every_option_moves_it_elsewhere(change):
    held, other = multiplier(), multiplier(**change)
    for each in (held, other):
        each.move(0.2)

    assert held.weight != other.weight
