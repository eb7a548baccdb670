import math

import pytest

from astra_parts.metrics.tries import equivalent_tries

OPTIONS = {"num_resamples": 500, "confidence": 0.95, "seed": 0}


def test_two_tries_of_a_half_succeed_as_often_as_one_of_three_quarters():
    found = equivalent_tries([1.0, 1.0, 1.0, 0.0] * 25, [0.0, 1.0, 0.5, 0.5] * 25, **OPTIONS)

    assert found.value == pytest.approx(2.0)
    assert 1.4 < found.low < 2.0 < found.high < 3.0
    assert found == equivalent_tries([1, 1, 1, 0] * 25, [0, 1, 0.5, 0.5] * 25, **OPTIONS)
    other = OPTIONS | {"seed": 1}
    assert found != equivalent_tries([1, 1, 1, 0] * 25, [0, 1, 0.5, 0.5] * 25, **other)


def test_equal_attackers_are_worth_one_try_and_no_rate_is_infinite():
    assert 1.0 == equivalent_tries([0.2, 0.4], [0.4, 0.2], **OPTIONS).value
    # 39.5 of 40 against 0.5 of 40.
    most = equivalent_tries([1.0] * 40, [0.0] * 40, **OPTIONS)
    assert most.value == pytest.approx(math.log(1 / 80) / math.log(79 / 80))
    assert 1.0 == equivalent_tries([0.5, math.nan], [0.5, 1.0], **OPTIONS).value
    nothing = equivalent_tries([math.nan], [1.0], **OPTIONS)
    assert all(map(math.isnan, (nothing.value, nothing.low, nothing.high)))
