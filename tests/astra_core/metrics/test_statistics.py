import math

import numpy as np
import pytest
from each_row import each_row

from astra_core.errors import DataError, ShapeError
from astra_core.metrics.statistics import Interval, bootstrap_mean, paired_gain, rate_interval
from astra_core.seeding import derive_key, generator


def interval(values, *, seed=0, confidence=0.95, num_resamples=2000):
    return bootstrap_mean(values, num_resamples=num_resamples, confidence=confidence, seed=seed)


def test_the_value_is_the_mean_and_lies_in_its_interval():
    found = interval([0.0, 0.0, 1.0, 1.0, 1.0])

    assert found.value == pytest.approx(0.6)
    assert 0.0 <= found.low < found.value < found.high <= 1.0


def test_the_interval_is_the_normal_one_for_many_values():
    values = np.random.default_rng(0).random(400)
    found = interval(values, num_resamples=5000)
    error = values.std() / np.sqrt(400)

    assert found.low == pytest.approx(values.mean() - 1.96 * error, abs=0.1 * error)
    assert found.high == pytest.approx(values.mean() + 1.96 * error, abs=0.1 * error)


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(100):
        found = interval(rng.binomial(1, 0.4, size=60), confidence=0.9, num_resamples=150)
        hits += found.low <= 0.4 <= found.high

    # Three standard errors (3) around 90.
    assert 81 <= hits <= 99


@each_row(
    ("values", "low", "high"),
    [
        # Clopper and Pearson: 1 - 0.025 ** (1 / 32) = 0.1089, and 0.025 ** (1 / 4) = 0.3976.
        ([0.0] * 32, 0.0, 0.1089),
        ([1.0] * 4, 0.3976, 1.0),
        ([0.0, math.nan], 0.0, 0.975),
        ([math.nan], math.nan, math.nan),
    ],
)
def test_a_rate_of_all_or_none_has_an_exact_interval(values, low, high):
    found = rate_interval(values, num_resamples=50, confidence=0.95, seed=0)

    assert pytest.approx((low, high), abs=5e-5, nan_ok=True) == (found.low, found.high)
    assert pytest.approx(values[0], nan_ok=True) == found.value


def test_a_rate_of_some_has_the_interval_of_the_bootstrap():
    given = {"num_resamples": 50, "confidence": 0.9, "seed": 3}

    rates = np.linspace(0, 1, 37)

    assert bootstrap_mean(rates, **given) == rate_interval(rates, **given)


def test_same_seed_same_interval():
    values = [0.1, 0.5, 0.9, 0.2]

    assert interval(values) == interval(values)
    assert interval(values).low != interval(np.random.default_rng(3).random(4)).low
    assert interval(np.linspace(0, 1, 37), seed=1) != interval(np.linspace(0, 1, 37), seed=2)


def test_an_interval_lies_between_percentiles_of_means_that_the_seed_alone_names():
    values = np.linspace(0, 1, 37) ** 2
    # More than are drawn at a time.
    draws = generator(derive_key(7, "bootstrap")).integers(37, size=(2500, 37))
    low, high = np.percentile(values[draws].mean(axis=1), [5, 95])
    found = interval(values, seed=7, confidence=0.9, num_resamples=2500)

    assert pytest.approx((low, high), rel=1e-12) == (found.low, found.high)


def test_figures_are_added_in_double_precision():
    # In fp32 2^24 + 1 is 2^24.
    values = np.array([2**24, 1, 1], dtype=np.float32)

    assert (2**24 + 2) / 3 == interval(values).value


def test_more_confidence_is_a_wider_interval():
    values = np.linspace(0, 1, 30)
    narrow, wide = (interval(values, confidence=c) for c in (0.5, 0.99))

    assert wide.low < narrow.low < narrow.high < wide.high


# The mean of 49 times 0.1 is not 0.1, but the same in every draw.
@each_row("values", [[0.25], [0.25] * 9, [0.1] * 49])
def test_values_that_do_not_vary_have_an_interval_of_no_width(values):
    mean = float(np.mean(values))

    assert Interval(mean, mean, mean) == interval(values)


def test_two_values_have_an_interval_from_the_one_to_the_other():
    # A quarter of all draws of two are the lower value twice, far more than 2.5 %.
    assert Interval(0.5, 0.0, 1.0) == interval([0.0, 1.0])


@each_row(("values", "shape"), [([], "(0,)"), ([[0.1, 0.2]], "(1, 2)")])
def test_there_must_be_one_figure_per_prompt(values, shape):
    with pytest.raises(ShapeError) as caught:
        interval(values)
    assert (f"values must hold one figure per prompt, got shape {shape}; evaluate some") == str(
        caught.value
    )


def test_an_interval_as_json():
    assert {"value": 0.5, "low": 0.25, "high": 0.75} == Interval(0.5, 0.25, 0.75).record()


def test_an_interval_survives_its_record_and_null_is_no_number():
    interval = Interval(0.5, 0.25, 0.75)

    assert interval == Interval.read(interval.record())
    assert math.isnan(Interval.read({"value": None, "low": 0.0, "high": 1.0}).value)


@each_row("low", [{}, {"low": "much"}, {"low": []}])
def test_what_is_no_interval_is_refused(low):
    with pytest.raises(DataError, match="an interval must hold numbers as value, low and high"):
        Interval.read({"value": 0.5, "high": 0.75, **low})


def test_an_interval_is_spelled_in_the_form_asked_for():
    interval = Interval(0.25, -0.125, 0.5)

    assert "0.250 [-0.125, 0.500]" == interval.spelled()
    assert "+0.250 [-0.125, +0.500]" == interval.spelled("+.3f")
    assert {"a": 0.25, "a_low": -0.125, "a_high": 0.5} == interval.flat("a")


def test_what_nobody_judged_is_left_out_of_a_mean():
    options = {"num_resamples": 200, "confidence": 0.95, "seed": 3}
    values = [0.2, 0.4, 0.9]

    assert bootstrap_mean(values, **options) == bootstrap_mean(
        [0.2, math.nan, 0.4, 0.9, math.nan], **options
    )
    assert math.isnan(bootstrap_mean([math.nan], **options).value)


def test_what_is_no_interval_is_reported_with_its_kind():
    expected = (
        "an interval must hold numbers as value, low and high, got KeyError; run the evaluation "
        "again"
    )
    with pytest.raises(DataError) as caught:
        Interval.read({"value": 0.5, "low": 0.4})

    assert expected == str(caught.value)


def test_a_difference_of_rates_is_told_in_points():
    assert "-12.5 points [-20.0, +73.1]" == Interval(-0.125, -0.2, 0.731).points()


def test_of_nothing_known_no_end_is_a_number():
    found = interval([math.nan, math.nan])

    assert "not measured" == found.spelled(".1%") == found.points()


def test_there_is_a_gain_for_each_prompt():
    with pytest.raises(ValueError, match="shorter"):
        paired_gain(["a", "b"], [0.5], num_resamples=10, confidence=0.9, seed=0)
