import math

import pytest

from astra_parts.targets.budget import Budget, Limits, Prices, Purse, Spent

FREE = Prices()


def limits(**given):
    return Limits.of(Budget(evaluation_share=0.0, **given), is_evaluation=False)


def test_without_limits_nothing_is_reached():
    assert "" == limits().reached(Spent(10**9, 10**9, 10**9), FREE, calls=10**9)
    assert math.inf == limits().calls


def test_each_limit_is_reached_in_words():
    assert "" == limits(calls=10).reached(Spent(7), FREE, calls=3)
    assert "8 of 10 calls made and 3 more to make" == limits(calls=10).reached(
        Spent(8), FREE, calls=3
    )
    assert "" == limits(tokens=10).reached(Spent(1, 4, 5), FREE)
    assert "10 of 10 tokens used" == limits(tokens=10).reached(Spent(1, 5, 5), FREE)
    prices = Prices(input=1.0, output=2.0)
    assert "5 of 5 spent" == limits(money=5.0).reached(Spent(1, 10**6, 2 * 10**6), prices)


def test_prices_are_of_a_million_tokens():
    assert 0.5e-6 * 3 + 2e-6 * 4 == pytest.approx(Prices(input=0.5, output=2.0).cost(3, 4))


def test_rollouts_leave_the_share_of_evaluations_alone():
    purse = Purse(Budget(calls=100, tokens=10, money=1.0, evaluation_share=0.1), FREE)

    assert Limits(90, 9, 0.9) == purse.limits
    with purse.evaluating():
        assert Limits(100, 10, 1.0) == purse.limits
    assert Limits(90, 9, 0.9) == purse.limits
