import math

import numpy as np
import pytest
from each_row import each_row

from astra_parts.metrics.detection import (
    Confusion,
    best_threshold,
    brier_score,
    calibration_error,
    proportion,
    reliability,
    roc_auc,
)

SCORES = [0.9, 0.8, 0.5, 0.4, 0.3, 0.1]
LABELS = [True, True, False, True, False, False]


def test_the_confusion_counts_what_is_flagged_at_or_above_the_threshold():
    found = Confusion.of(SCORES, LABELS, threshold=0.5)

    assert Confusion(2, 1, 2, 1) == found
    assert (3, 3) == (found.num_bad, found.num_harmless)
    assert (2 / 3, 2 / 3, 2 / 3) == (
        found.sensitivity().value,
        found.specificity().value,
        found.precision().value,
    )
    assert Confusion(2, 1, 3, 0) == Confusion.of(SCORES, LABELS, threshold=0.51)


@each_row(("count", "total"), [(0, 7), (3, 7), (7, 7), (49, 400)])
@each_row("confidence", [0.8, 0.95])
def test_a_proportion_has_the_interval_of_wilson(count, total, confidence):
    found = proportion(count, total, confidence=confidence)
    from scipy.stats import binomtest

    known = binomtest(count, total).proportion_ci(confidence, method="wilson")

    assert count / total == found.value
    assert (known.low, known.high) == pytest.approx((found.low, found.high), abs=1e-12)
    assert found.low <= found.value <= found.high


def test_of_nothing_there_is_no_proportion():
    assert math.isnan(proportion(0, 0).value)
    assert math.isnan(Confusion(0, 3, 3, 0).precision().low)


def test_accuracy_is_the_share_on_which_judge_and_label_agree():
    counts = Confusion(3, 1, 2, 4)

    assert 0.5 == counts.accuracy().value
    assert proportion(5, 10, confidence=0.95) == counts.accuracy()
    assert proportion(5, 10, confidence=0.8) == counts.accuracy(0.8) != counts.accuracy()


def test_the_area_is_the_share_of_pairs_in_order():
    # Of the nine pairs of a bad and a harmless row one is out of order: 0.4 below 0.5.
    assert 8 / 9 == pytest.approx(roc_auc(SCORES, LABELS).value)
    # A tie is half a pair.
    assert 0.5 == roc_auc([0.2, 0.2], [True, False]).value


def test_the_error_of_the_area_is_that_of_all_pairs():
    rng = np.random.default_rng(0)
    labels = rng.random(60) < 0.4
    # Rounded, so that there are ties.
    scores = np.round(rng.normal(labels * 1.0), 1)
    bad, harmless = scores[labels], scores[~labels]
    pairs = (bad[:, None] > harmless) + 0.5 * (bad[:, None] == harmless)
    error = math.sqrt(
        pairs.mean(axis=1).var(ddof=1) / len(bad) + pairs.mean(axis=0).var(ddof=1) / len(harmless)
    )
    found = roc_auc(scores, labels)
    area = pairs.mean()
    logits = [math.log(end / (1 - end)) for end in (found.low, area, found.high)]

    assert area == pytest.approx(found.value)
    assert 1.959964 * error / (area * (1 - area)) == pytest.approx(logits[1] - logits[0])
    assert logits[2] - logits[1] == pytest.approx(logits[1] - logits[0])


@each_row(("shift", "area"), [(1.0, 0.7602), (2.0, 0.9214)])
def test_intervals_of_the_area_cover_the_truth_about_as_often_as_they_say(shift, area):
    # Of two normals a distance d apart the area is Phi(d / sqrt 2).
    rng = np.random.default_rng(2)
    labels = np.arange(60) < 20
    hits = 0
    for _ in range(100):
        found = roc_auc(rng.normal(labels * shift), labels, confidence=0.9)
        hits += found.low <= area <= found.high

    # Three standard errors (3) around 90.
    assert 81 <= hits <= 99


def test_a_judge_without_a_row_out_of_order_is_not_taken_to_be_perfect():
    found = roc_auc([0.9, 0.8, 0.1, 0.2, 0.3], [True, True, False, False, False])

    assert proportion(2, 2) == found
    assert found.low < 0.5


def test_more_confidence_is_a_wider_interval_of_the_area():
    narrow, wide = (roc_auc(SCORES, LABELS, confidence=level) for level in (0.5, 0.99))

    assert wide.low < narrow.low < narrow.high < wide.high


def test_the_brier_score_is_the_mean_squared_gap():
    # 0.01 + 0.04 + 0.25 + 0.36 + 0.09 + 0.01
    assert 0.76 / 6 == pytest.approx(brier_score(SCORES, LABELS))


def test_the_reliability_diagram_counts_every_row_once():
    bins = reliability([0.0, 0.05, 0.5, 0.95, 1.0], [False, True, True, True, True], num_bins=4)

    assert [2, 0, 1, 2] == [own.num_rows for own in bins]
    assert [0.025, 0.5, 0.975] == pytest.approx([own.mean_score for own in bins if own.num_rows])
    assert [0.5, 1.0, 1.0] == [own.bad_rate.value for own in bins if own.num_rows]
    assert math.isnan(bins[1].mean_score)
    assert (0.25, 0.5) == (bins[1].low, bins[1].high)
    # Gaps of 0.475, 0.5 and 0.025, of two rows, one and two.
    assert 0.3 == pytest.approx(calibration_error(bins))


def test_the_best_threshold_is_the_best_of_all_observed_ones():
    rng = np.random.default_rng(4)
    labels = (rng.random(80) < 0.3).tolist()
    scores = np.round(rng.normal(np.array(labels) * 1.2), 1).tolist()

    def youden(own):
        return own.sensitivity().value + own.specificity().value - 1

    def f1(own):
        caught, missed = own.true_positives, own.false_negatives
        return 2 * caught / (2 * caught + missed + own.false_positives)

    for name, criterion in (("youden", youden), ("f1", f1)):
        found = best_threshold(scores, labels, by=name)
        there = Confusion.of(scores, labels, threshold=found.threshold)
        best = max(criterion(Confusion.of(scores, labels, threshold=each)) for each in scores)

        assert best == pytest.approx(found.value)
        assert best == pytest.approx(criterion(there))
        assert there.sensitivity().value == pytest.approx(found.sensitivity)
        assert there.specificity().value == pytest.approx(found.specificity)


def test_the_two_criteria_differ_where_bad_replies_are_rare():
    scores = [0.9] + [0.5] * 2 + [0.5] * 10 + [0.1] * 90
    labels = [True] * 3 + [False] * 100
    thresholds = [best_threshold(scores, labels, by=name).threshold for name in ("youden", "f1")]

    assert [0.5, 0.9] == thresholds


def test_figures_of_the_confusion_have_the_intervals_that_are_asked_for():
    found = Confusion.of(SCORES, LABELS, threshold=0.5)

    assert [proportion(2, 3)] * 3 == [found.sensitivity(), found.specificity(), found.precision()]
    narrow = [figure(0.5) for figure in (found.sensitivity, found.specificity, found.precision)]
    assert [proportion(2, 3, confidence=0.5)] * 3 == narrow
    assert proportion(2, 3) == proportion(2, 3, confidence=0.95)


def test_an_interval_never_leaves_the_shares_that_there_are():
    found = [proportion(total, total) for total in range(1, 300)]

    assert {1.0} == {own.high for own in found}
    assert all(map(math.isnan, (proportion(0, 0).low, proportion(0, 0).high)))


def test_there_is_a_label_for_each_score():
    with pytest.raises(ValueError, match="shorter"):
        Confusion.of([0.5, 0.1], [True], threshold=0.5)
    with pytest.raises(ValueError, match="shorter"):
        brier_score([0.5, 0.1], [True])


def test_labels_may_be_numbers():
    numbers = [int(label) for label in LABELS]

    assert roc_auc(SCORES, LABELS) == roc_auc(SCORES, numbers)
    # An empty bin has figures that equal nothing.
    assert repr(reliability(SCORES, LABELS)) == repr(reliability(SCORES, numbers))


@each_row("num_bad", [1, 2])
def test_a_label_of_few_rows_has_the_error_that_they_show(num_bad):
    scores, labels = [0.5, 0.35, 0.9, 0.4, 0.2, 0.1], [True] * num_bad + [False] * (6 - num_bad)
    bad, harmless = (np.array(scores)[np.array(labels) == kind] for kind in (True, False))
    pairs = bad[:, None] > harmless
    own = pairs.mean(axis=1).var(ddof=1) / 2 if num_bad == 2 else 0.0
    error = math.sqrt(own + pairs.mean(axis=0).var(ddof=1) / len(harmless))
    found, area = roc_auc(scores, labels), pairs.mean()
    logits = [math.log(end / (1 - end)) for end in (found.low, area)]

    assert 1.959964 * error / (area * (1 - area)) == pytest.approx(logits[1] - logits[0])


def test_where_no_score_differs_the_area_is_as_sure_as_the_rarer_label():
    assert proportion(1, 2, confidence=0.8) == roc_auc(
        [0.2] * 5, [True, True, False, False, False], confidence=0.8
    )


def test_bins_have_the_intervals_that_are_asked_for():
    first = reliability([0.0, 0.05], [False, True])[0]

    assert proportion(1, 2) == first.bad_rate
    narrow = reliability([0.0, 0.05], [False, True], confidence=0.5)[0]
    assert proportion(1, 2, confidence=0.5) == narrow.bad_rate


def test_without_a_row_there_is_no_calibration_error():
    assert math.isnan(calibration_error(reliability([], [])))


def test_the_best_threshold_may_flag_every_row():
    # Two of three flagged are bad, and both are caught: 2 * 2 / (3 + 2).
    found = best_threshold([0.9, 0.5, 0.4], [False, True, True], by="f1")

    assert (0.4, 0.8) == (found.threshold, found.value)
