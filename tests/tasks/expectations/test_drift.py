import math

import numpy as np
import pytest
from each_row import each_row

from tasks.expectations.drift import drifts

EVEN, SKEWED = {"score": [50, 50]}, {"score": [80, 20]}


def _one(now, then, *, rows=(10_000, 10_000), limit=0.25):
    (found,) = drifts("prompts", now, then, rows=rows, limit=limit)
    return found


def test_the_index_is_that_of_the_formula():
    # Half a row is added to each bin: shares 50.5/101 and 80.5/101.
    p, q = np.array([50.5, 50.5]) / 101, np.array([80.5, 20.5]) / 101

    assert float(np.sum((p - q) * np.log(p / q))) == pytest.approx(_one(EVEN, SKEWED).index)
    assert _one(SKEWED, EVEN).index == pytest.approx(_one(EVEN, SKEWED).index)
    assert 0.0 == _one(EVEN, EVEN).index


def test_chance_is_the_chi_squared_quantile_over_the_rows():
    # One degree of freedom, one in a thousand: 10.828; two sets of a hundred rows.
    assert 10.828 * 2 / 100 == pytest.approx(_one(EVEN, SKEWED, rows=(100, 100)).chance, rel=1e-4)


@each_row(
    ("rows", "limit", "is_large"),
    [((1000, 1000), 0.25, True), ((1000, 1000), 0.5, False), ((50, 50), 0.25, False)],
)
def test_a_drift_exceeds_both_its_limit_and_chance(rows, limit, is_large):
    assert is_large is _one(EVEN, SKEWED, rows=rows, limit=limit).is_large


def test_samples_of_one_population_rarely_exceed_chance():
    draw, shares = np.random.default_rng(0), np.full(10, 0.1)
    found = [
        _one(
            {"score": draw.multinomial(500, shares).tolist()},
            {"score": draw.multinomial(500, shares).tolist()},
            rows=(500, 500),
        )
        for _ in range(500)
    ]

    # One in a thousand by construction; more than four of 500 has a chance of 2e-4.
    assert 4 >= sum(each.index > each.chance for each in found)
    assert not any(each.is_large for each in found)
    # The mean of chi-squared with nine degrees of freedom, times two five-hundredths.
    assert 9 * 2 / 500 == pytest.approx(np.mean([each.index for each in found]), rel=0.1)


def test_a_bin_that_one_side_never_saw_leaves_the_index_finite():
    assert math.isfinite(_one({"score": [100, 0, 0]}, {"score": [0, 0, 100]}).index)


def test_only_what_both_profiles_count_alike_is_compared():
    now = {"score": [1, 2], "words": [1], "characters": [3, 4]}

    found = drifts("prompts", now, {"score": [2, 2], "words": [1, 1]}, rows=(9, 9), limit=0.1)

    assert ["score"] == [each.what for each in found]
