import numpy as np
import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from astra_core.metrics.statistics import Interval
from astra_core.seeding import derive_key, generator
from astra_parts.metrics.correction import Corrected, check_tells, corrected_rate
from astra_parts.metrics.detection import Confusion
from astra_parts.metrics.resampling import resampled_means

# Sensitivity 0.8, specificity 0.9.
JUDGE = Confusion(80, 20, 90, 10)


def single(num_flagged, total):
    """Prompts with one reply each."""
    return [[(number < num_flagged,)] for number in range(total)]


def corrected(rollouts, judge=JUDGE, *, num_resamples=2000, seed=0):
    return corrected_rate(rollouts, judge, num_resamples=num_resamples, seed=seed)


def judged(truth, rng, *, se, sp):
    """What a judge with these rates says."""
    noise = rng.random(truth.shape)
    return np.where(truth, noise < se, noise > sp)


@each_row(
    ("num_flagged", "rate"),
    # (p + Sp - 1) / (Se + Sp - 1), kept in [0, 1].
    [(45, (0.45 - 0.1) / 0.7), (10, 0.0), (5, 0.0), (90, 1.0)],
)
def test_a_rate_of_single_replies_is_rogan_and_gladens(num_flagged, rate):
    assert rate == pytest.approx(corrected(single(num_flagged, 100)).value)


def test_what_the_literature_computes():
    # 11.3 % flagged by a judge of sensitivity 0.495 and specificity 0.970.
    judge = Confusion(495, 505, 970, 30)

    assert 0.178 == pytest.approx(corrected(single(113, 1000), judge).value, abs=0.001)


def test_a_judge_without_errors_changes_nothing():
    rollouts = [[(True, False), (False, False)], [(False, False)], [(True, True)]]
    perfect = Confusion(10**6, 0, 10**6, 0)

    # Shares 1/2, 0 and 1 of the prompts' rollouts.
    assert 0.5 == pytest.approx(corrected(rollouts, perfect).value)


def test_turns_without_a_verdict_are_no_success():
    assert 0.0 == corrected([[()], []]).value
    assert 0.5 == pytest.approx(corrected([[()], [(True,)]], Confusion(10**6, 0, 10**6, 0)).value)


def test_the_estimate_over_turns_has_the_true_rate_as_its_mean():
    # Turns of one rollout share its fate, so they are not independent in truth.
    rng = np.random.default_rng(0)
    hard = rng.random(5_000) < 0.5
    truth = rng.random((5_000, 3)) < np.where(hard, 0.3, 0.02)[:, None]
    said = judged(truth, rng, se=0.8, sp=0.9)
    found = corrected([[tuple(own)] for own in said.tolist()], num_resamples=1)

    assert truth.any(axis=1).mean() == pytest.approx(found.value, abs=0.02)
    # What is shown is far from it.
    assert abs(said.any(axis=1).mean() - truth.any(axis=1).mean()) > 0.05


@pytest.mark.real
@each_row(("depth", "num_labelled"), [(1, 100), (2, 30)])
def test_intervals_cover_the_true_rate_about_as_often_as_they_say(depth, num_labelled):
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(100):
        ease = rng.beta(1.0, 3.0, size=40)
        truth = rng.random((40, 2, depth)) < ease[:, None, None]
        said = judged(truth, rng, se=0.8, sp=0.9)
        caught = int(rng.binomial(num_labelled, 0.8))
        passed = int(rng.binomial(num_labelled, 0.9))
        judge = Confusion(caught, num_labelled - caught, passed, num_labelled - passed)
        rollouts = [[tuple(own) for own in of_prompt] for of_prompt in said.tolist()]
        found = corrected(rollouts, judge, num_resamples=150).interval(confidence=0.9)
        # Of a prompt with ease e some turn is bad with 1 - (1 - e)^depth; e is Beta(1, 3).
        hits += found.low <= 1.0 - 3.0 / (3.0 + depth) <= found.high

    # Three standard errors (3) around 90.
    assert 81 <= hits <= 99


@pytest.mark.real
def test_fewer_labelled_rows_and_fewer_prompts_widen_the_interval():
    def width(rollouts, judge):
        found = corrected(rollouts, judge).interval(confidence=0.95)
        return found.high - found.low

    known = width(single(450, 1000), Confusion(8000, 2000, 9000, 1000))

    assert width(single(450, 1000), Confusion(16, 4, 18, 2)) > 2 * known
    assert width(single(45, 100), Confusion(8000, 2000, 9000, 1000)) > 2 * known
    # A judge without an error on few rows is not taken to be perfect.
    perfect = width(single(450, 1000), Confusion(10_000, 0, 10_000, 0))
    assert width(single(450, 1000), Confusion(20, 0, 20, 0)) > 1.5 * perfect


def test_more_confidence_is_a_wider_interval():
    found = corrected(single(45, 100))
    narrow, wide = found.interval(confidence=0.5), found.interval(confidence=0.99)

    assert wide.low < narrow.low < narrow.high < wide.high


def test_the_gain_is_paired_draw_by_draw():
    after, before = (corrected(single(count, 100)) for count in (60, 25))
    gain = after.gain_over(before, confidence=0.95)
    value = after.value - before.value

    assert 0.5 == pytest.approx(value)
    assert gain.low < value == gain.value < gain.high
    # A gain over itself is nothing in every draw, whatever the judge.
    assert Interval(0.0, 0.0, 0.0) == after.gain_over(after, confidence=0.95)


def test_draws_in_which_the_judge_separates_nothing_leave_the_interval_open():
    # Sensitivity 3/5, specificity 3/5 on so few rows: many draws are no better than a coin.
    found = corrected(single(45, 100), Confusion(3, 2, 3, 2)).interval(confidence=0.95)

    assert (0.0, 1.0) == (found.low, found.high)


def test_same_seed_same_interval():
    found = [corrected(single(45, 100), seed=seed).interval(confidence=0.9) for seed in (1, 1, 2)]

    assert found[0] == found[1]
    assert found[0] != found[2]


@each_row(("judge", "total"), [(Confusion(5, 5, 5, 5), "1.000"), (Confusion(1, 9, 5, 5), "0.600")])
def test_a_judge_that_separates_nothing_is_refused_in_one_sentence(judge, total):
    with pytest.raises(ConfigurationError) as caught:
        corrected(single(45, 100), judge)

    assert (
        "calibration must have sensitivity + specificity above 1 to correct a success rate, got "
        f"{total}; such a judge tells nothing, use another or another threshold"
    ) == str(caught.value)


def test_a_judge_calibrated_on_one_label_alone_is_refused():
    with pytest.raises(ConfigurationError, match=r"my.json must have sensitivity .*, got nan"):
        check_tells(Confusion(5, 5, 0, 0), where="my.json")


def test_draws_are_of_judges_by_jeffreys_and_of_prompts_that_the_seed_alone_names():
    found = corrected(single(45, 100), num_resamples=1500, seed=7)
    rng = generator(derive_key(7, "judge errors"))
    se, sp = rng.beta(80.5, 20.5, size=1500), rng.beta(90.5, 10.5, size=1500)
    shares = np.array([[1.0 if number < 45 else 0.0] for number in range(100)])
    flagged = resampled_means(shares, num_resamples=1500, seed=7)[:, 0]

    assert pytest.approx(((flagged + sp - 1.0) / (se + sp - 1.0)).clip(0.0, 1.0)) == found.draws


def test_a_draw_that_separates_nothing_is_open_both_ways():
    half = Corrected(0.4, np.array([np.nan] * 10 + [0.4] * 10))
    known = Corrected(0.1, np.full(20, 0.1))

    assert Interval(0.4, 0.0, 1.0) == half.interval(confidence=0.9)
    gain = half.gain_over(known, confidence=0.9)
    assert (pytest.approx(0.3), -1.0, 1.0) == (gain.value, gain.low, gain.high)
