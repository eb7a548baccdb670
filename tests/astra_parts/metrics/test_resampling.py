import math

import numpy as np
import pytest

from astra_core.errors import ShapeError
from astra_core.seeding import derive_key, generator
from astra_parts.metrics.resampling import ends_of, equivalent_tries, resampled_means


def test_means_are_of_rows_drawn_with_replacement():
    table = np.random.default_rng(0).random((50, 2))
    means = resampled_means(table, num_resamples=4000, seed=0)

    assert (4000, 2) == means.shape
    assert table.mean(axis=0) == pytest.approx(means.mean(axis=0), abs=0.005)
    # Drawing with replacement has the spread of the mean of 50, without it there would be none.
    assert table.std(axis=0) / np.sqrt(50) == pytest.approx(means.std(axis=0), rel=0.05)


def test_columns_of_a_row_stay_together():
    table = np.stack([np.arange(9.0), -np.arange(9.0)], axis=1)
    means = resampled_means(table, num_resamples=100, seed=3)

    assert means[:, 0] == pytest.approx(-means[:, 1])


def test_tables_of_one_length_are_resampled_alike():
    first, second = np.random.default_rng(1).random((2, 20, 1))
    both = resampled_means(np.hstack([first, second]), num_resamples=1500, seed=5)

    assert both[:, :1] == pytest.approx(resampled_means(first, num_resamples=1500, seed=5))
    assert both[:, 1:] == pytest.approx(resampled_means(second, num_resamples=1500, seed=5))
    assert not np.allclose(both[:, :1], resampled_means(first, num_resamples=1500, seed=6))


def test_a_table_without_a_row_is_refused():
    with pytest.raises(ShapeError, match=r"one row per prompt, got shape \(0, 2\); evaluate some"):
        resampled_means(np.zeros((0, 2)), num_resamples=10, seed=0)


def test_the_ends_are_percentiles_and_what_is_unknown_is_left_out():
    draws = np.append(np.arange(101.0), np.nan)

    assert (5.0, 95.0) == pytest.approx(ends_of(draws, draws, confidence=0.9))
    assert (25.0, 75.0) == pytest.approx(ends_of(draws, draws, confidence=0.5))
    assert np.isnan(ends_of(np.full(3, np.nan), np.full(3, np.nan), confidence=0.9)).all()


def test_draws_are_as_many_as_are_asked_for_and_named_by_the_seed():
    table = np.arange(6.0).reshape(3, 2)
    rng = generator(derive_key(4, "resampled prompts"))
    # A thousand at a time.
    counts = [rng.multinomial(3, [1 / 3] * 3, size=size) for size in (1000, 500)]

    expected = np.concatenate(counts) @ table / 3
    assert pytest.approx(expected) == resampled_means(table, num_resamples=1500, seed=4)


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
