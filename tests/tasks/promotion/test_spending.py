import pytest
from each_row import each_row

from tasks.params.schema import PromotionConfiguration
from tasks.promotion.spending import level_of, place_of


@each_row(("error", "horizon"), [(0.05, 30), (0.1, 7), (0.01, 1)])
def test_the_duels_of_a_horizon_spend_what_is_stated_and_no_more(error, horizon):
    rules = PromotionConfiguration(family_error=error, horizon=horizon)

    assert sum(level_of(duel, rules) for duel in range(1, horizon + 1)) == pytest.approx(error)
    assert all(level_of(duel, rules) > 0.0 for duel in range(1, 3 * horizon))


def test_after_the_horizon_another_begins():
    rules = PromotionConfiguration(horizon=30)

    assert [1, 30, 1, 2] == [place_of(duel, rules) for duel in (1, 30, 31, 62)]
    assert level_of(31, rules) == level_of(1, rules)
