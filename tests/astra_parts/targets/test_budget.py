import pytest
from each_row import each_row

from astra_parts.targets.budget import Budget, Prices, Purse, Spent


def purse(prices=None, **given):
    return Purse(Budget(evaluation_share=0.0, **given), prices or Prices())


def test_without_limits_nothing_is_reached():
    assert "" == purse().reached_limit(Spent(10**9, 10**9, 10**9), calls=10**9)


def test_each_limit_is_reached_in_words():
    assert "" == purse(calls=10).reached_limit(Spent(7), calls=3)
    assert "8 of 10 calls made and 3 more to make" == purse(calls=10).reached_limit(
        Spent(8), calls=3
    )
    assert "" == purse(tokens=10).reached_limit(Spent(1, 4, 5))
    assert "10 of 10 tokens used" == purse(tokens=10).reached_limit(Spent(1, 5, 5))
    prices = Prices(input=1.0, output=2.0)
    assert "5 of 5 spent" == purse(prices, money=5.0).reached_limit(Spent(1, 10**6, 2 * 10**6))


def test_prices_are_of_a_million_tokens():
    assert 0.5e-6 * 3 + 2e-6 * 4 == pytest.approx(Prices(input=0.5, output=2.0).cost(3, 4))


@each_row(
    ("limit", "spent", "less", "whole"),
    [
        ({"calls": 100}, Spent(100), "of 90 calls", "of 100 calls"),
        ({"tokens": 10}, Spent(0, 0, 10), "of 9 tokens", "of 10 tokens"),
        ({"money": 1.0}, Spent(0, 10**6), "of 0.9 spent", "of 1 spent"),
    ],
)
def test_rollouts_leave_the_share_of_evaluations_alone(limit, spent, less, whole):
    own = Purse(Budget(evaluation_share=0.1, **limit), Prices(input=1.0))

    assert less in own.reached_limit(spent)
    with own.evaluating():
        assert whole in own.reached_limit(spent)
    assert less in own.reached_limit(spent)
