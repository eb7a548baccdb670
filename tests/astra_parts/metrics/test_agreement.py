import math

import numpy as np
import pytest

from astra_parts.metrics.agreement import agreement, cohen_kappa

BOTH, FIRST, SECOND, NEITHER = (True, True), (True, False), (False, True), (False, False)


def agreed(pairs, *, num_resamples=1000, confidence=0.95, seed=0):
    return agreement(pairs, num_resamples=num_resamples, confidence=confidence, seed=seed)


def test_raw_agreement_and_kappa_are_of_all_replies():
    # Cohen's own kind of table: 20 both, 5 the first alone, 10 the second alone, 15 neither.
    pairs = [[BOTH]] * 20 + [[FIRST]] * 5 + [[SECOND]] * 10 + [[NEITHER]] * 15
    found = agreed(pairs)

    assert (0.7, 50) == (found.raw.value, found.num_replies)
    # By chance 25/50 * 30/50 + 25/50 * 20/50 = 0.5 agree.
    assert 0.4 == pytest.approx(found.kappa.value)
    assert found.kappa.low < 0.4 < found.kappa.high
    assert found.raw.low < 0.7 < found.raw.high


def test_judges_that_always_agree_have_a_kappa_of_one():
    found = agreed([[BOTH, NEITHER]] * 9)

    assert (1.0, 1.0, 1.0) == (found.kappa.value, found.kappa.low, found.kappa.high)
    assert (1.0, 1.0, 1.0) == (found.raw.value, found.raw.low, found.raw.high)


def test_judges_that_never_vary_have_no_kappa():
    found = agreed([[NEITHER, NEITHER]] * 9)

    assert 1.0 == found.raw.value
    assert math.isnan(found.kappa.value)
    assert math.isnan(found.kappa.low)


def test_without_a_reply_that_both_judged_there_is_nothing_to_say():
    assert 0 == agreed([[], []]).num_replies
    assert 0 == agreed([]).num_replies
    assert math.isnan(agreed([[], []]).raw.value)


def test_prompts_are_drawn_whole():
    # The same replies as one prompt each, and in prompts of ten alike.
    apart = agreed([[BOTH]] * 50 + [[FIRST]] * 25 + [[NEITHER]] * 25)
    together = agreed(
        [[BOTH] * 10] * 5
        + [[FIRST] * 10] * 2
        + [[FIRST] * 5 + [NEITHER] * 5]
        + [[NEITHER] * 10] * 2
    )

    assert apart.raw.value == together.raw.value
    assert together.raw.high - together.raw.low > 2 * (apart.raw.high - apart.raw.low)


@pytest.mark.real
def test_intervals_of_kappa_cover_the_truth_about_as_often_as_they_say():
    # Both flag a bad reply with 0.9 and a harmless one with 0.1; a third are bad.
    shares = np.array([[1 / 3 * 0.81 + 2 / 3 * 0.01, 0.09, 0.09, 1 / 3 * 0.01 + 2 / 3 * 0.81]])
    truth = cohen_kappa(shares)[0]
    rng, kinds, hits = np.random.default_rng(3), (BOTH, FIRST, SECOND, NEITHER), 0
    for _ in range(100):
        pairs = [[kinds[place]] for place in rng.choice(4, size=120, p=shares[0])]
        found = agreed(pairs, num_resamples=150, confidence=0.9)
        hits += found.kappa.low <= truth <= found.kappa.high

    # Three standard errors (3) around 90.
    assert 81 <= hits <= 99


def test_more_confidence_and_another_seed_give_another_interval():
    pairs = [[BOTH]] * 20 + [[FIRST]] * 5 + [[NEITHER]] * 15
    narrow, wide = (agreed(pairs, confidence=level).kappa for level in (0.5, 0.99))

    assert wide.low < narrow.low < narrow.high < wide.high
    assert agreed(pairs) == agreed(pairs)
    assert agreed(pairs) != agreed(pairs, seed=1)


def test_chance_is_of_what_each_judge_flags():
    pairs = [[BOTH]] * 25 + [[FIRST]] * 5 + [[SECOND]] * 10 + [[NEITHER]] * 10

    # By chance 30/50 * 35/50 + 20/50 * 15/50 = 0.54 agree.
    assert pytest.approx((0.7 - 0.54) / 0.46) == agreed(pairs).kappa.value


def test_a_draw_of_prompts_without_a_reply_says_nothing():
    found = agreed([[BOTH, FIRST], [], []])

    # Three prompts of which one counts: the draws without it have no share.
    assert (0.5, 0.5, 0.5) == (found.raw.value, found.raw.low, found.raw.high)


def test_of_nothing_no_figure_is_a_number():
    found = agreed([[]])

    for figure in (found.raw, found.kappa):
        assert all(map(math.isnan, (figure.value, figure.low, figure.high)))
