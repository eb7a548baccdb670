import numpy as np
import pytest
from each_row import each_row

from astra_core.errors import DataError
from astra_core.metrics.statistics import bootstrap_mean
from tasks.promotion.drift import drift_between

NUM_DRAWS = 600


def rates(rng, count, *, mean=0.6):
    """Success rates of two rollouts of each prompt; prompts differ in how hard they are."""
    return rng.binomial(2, rng.beta(4 * mean, 4 * (1 - mean), size=count)) / 2


def share_of_alarms(sizes, *, change=0.0, confidence=0.95):
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(NUM_DRAWS):
        today, registered = rates(rng, sizes[0], mean=0.6 + change), rates(rng, sizes[1])
        found = drift_between(today, registered, confidence=confidence)
        alarms += not found.low <= 0.0 <= found.high
    return alarms / NUM_DRAWS


@pytest.mark.real
@each_row("sizes", [(200, 200), (24, 200), (24, 24)])
def test_nothing_has_changed_and_the_alarm_is_rare(sizes):
    # Binomial(600, 0.05): a standard deviation of 0.009.
    assert share_of_alarms(sizes) <= 0.075


@pytest.mark.real
def test_the_interval_of_one_estimate_alone_would_alarm_three_times_as_often():
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(200):
        today, registered = rates(rng, 200), rates(rng, 200)
        one = bootstrap_mean(registered, num_resamples=400, confidence=0.95, seed=0)
        alarms += not one.low <= today.mean() <= one.high

    # Two equal variances: |z| > 1.96 / sqrt(2) has probability 0.166.
    assert 0.166 == pytest.approx(alarms / 200, abs=0.06)


def test_the_alarm_follows_the_confidence():
    # Binomial(600, 0.2): a standard deviation of 0.016.
    assert 0.2 == pytest.approx(share_of_alarms((200, 200), confidence=0.8), abs=0.05)


def test_a_real_drop_is_noticed():
    # A difference of 0.2 is five standard errors of two samples of 200.
    assert share_of_alarms((200, 200), change=-0.2) > 0.95


def test_the_difference_is_today_minus_then():
    found = drift_between([1.0, 0.5, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0], confidence=0.95)

    assert -0.375 == found.value
    assert found.low < found.value < found.high


def test_equal_outcomes_have_a_sampling_error_too():
    found = drift_between([1.0] * 10, [0.9, *[1.0] * 9], confidence=0.95)

    assert found.low < 0.0 < found.high


def test_the_interval_is_welchs_of_both_samples_with_two_more_prompts():
    today, registered = [0.0, 0.5, 1.0, 1.0, 1.0], [0.0, 0.0, 0.5, 1.0]
    found = drift_between(today, registered, confidence=0.9)
    from scipy.stats import ttest_ind

    both = ttest_ind([*today, 0, 1], [*registered, 0, 1], equal_var=False)
    expected = both.confidence_interval(0.9)

    assert expected.low == pytest.approx(found.low)
    assert expected.high == pytest.approx(found.high)


@each_row("samples", [([], [0.5]), ([0.5], [])])
def test_an_empty_sample_is_refused(samples):
    with pytest.raises(DataError, match="both samples must hold prompts"):
        drift_between(*samples, confidence=0.95)
