import statistics

import pytest

from astra_parts.rewards.running import RunningScale


def test_values_merged_batch_by_batch_have_the_mean_and_variance_of_all():
    batches = [[1.0, 2.0, 4.0], [], [8.0], [-3.0, 0.5]]
    every = [value for batch in batches for value in batch]
    scale = RunningScale()
    for batch in batches:
        scale.add(batch)

    expected = (3.0 - statistics.fmean(every)) / statistics.pstdev(every)
    assert expected == pytest.approx(scale.scaled(3.0), rel=1e-12)


def test_a_value_is_itself_until_two_are_known():
    scale = RunningScale()
    scale.add([5.0])

    assert 7.0 == scale.scaled(7.0)
    scale.add([7.0])
    assert 1.0 == pytest.approx(scale.scaled(7.0))


def test_a_value_far_away_counts_ten_deviations_and_no_more():
    scale = RunningScale()
    scale.add([1.0, 1.0, 1.0])

    assert [10.0, -10.0, 0.0] == [scale.scaled(value) for value in (2.0, 0.0, 1.0)]
