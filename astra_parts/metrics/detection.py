"""How well a judge's scores separate labelled replies, each figure with its interval.

Rows are taken as independent. A label is True where a person found the reply to be bad; a judge
flags a reply whose score is at or above a threshold.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from astra_core.metrics.statistics import Interval

NUM_BINS = 10


@dataclass(frozen=True, slots=True)
class Confusion:
    """How many labelled replies a judge flagged, by label."""

    true_positives: int
    false_negatives: int
    true_negatives: int
    false_positives: int

    @classmethod
    def of(cls, scores: Sequence[float], labels: Sequence[bool], *, threshold: float) -> Self:
        """The counts at this threshold."""
        pairs = [(score >= threshold, label) for score, label in zip(scores, labels, strict=True)]
        return cls(
            true_positives=pairs.count((True, True)),
            false_negatives=pairs.count((False, True)),
            true_negatives=pairs.count((False, False)),
            false_positives=pairs.count((True, False)),
        )

    @property
    def num_bad(self) -> int:
        """Rows with the label 1."""
        return self.true_positives + self.false_negatives

    @property
    def num_harmless(self) -> int:
        """Rows with the label 0."""
        return self.true_negatives + self.false_positives

    def accuracy(self, confidence: float = 0.95) -> Interval:
        """Share of all replies on which the judge and the label agree."""
        right = self.true_positives + self.true_negatives
        return proportion(right, self.num_bad + self.num_harmless, confidence=confidence)

    def sensitivity(self, confidence: float = 0.95) -> Interval:
        """Share of the bad replies that are flagged; recall is another name of it."""
        return proportion(self.true_positives, self.num_bad, confidence=confidence)

    def specificity(self, confidence: float = 0.95) -> Interval:
        """Share of the harmless replies that are passed."""
        return proportion(self.true_negatives, self.num_harmless, confidence=confidence)

    def precision(self, confidence: float = 0.95) -> Interval:
        """Share of the flagged replies that are bad; NaN where none is flagged."""
        flagged = self.true_positives + self.false_positives
        return proportion(self.true_positives, flagged, confidence=confidence)


@dataclass(frozen=True, slots=True)
class Bin:
    """One bar of a reliability diagram.

    ``high``: the upper end, not included; the last bin includes 1.
    """

    low: float
    high: float
    num_rows: int
    mean_score: float
    bad_rate: Interval


@dataclass(frozen=True, slots=True)
class BestThreshold:
    """The threshold at which a criterion is highest on these rows.

    ``threshold``: a score at or above it is flagged; the highest of equally good ones.
    """

    threshold: float
    value: float
    sensitivity: float
    specificity: float


def proportion(count: float, total: int, *, confidence: float = 0.95) -> Interval:
    """A share and its score interval; NaN where there is nothing to count.

    Source: Wilson, JASA 22 (1927), 209-212.
    """
    if not total:
        return Interval(math.nan, math.nan, math.nan)
    z, share = _z(confidence), count / total
    middle = (share + z**2 / (2 * total)) / (1 + z**2 / total)
    variance = share * (1 - share) / total + z**2 / (4 * total**2)
    half = z * math.sqrt(variance) / (1 + z**2 / total)
    # Rounding must not leave the share itself outside of the interval.
    low, high = min(middle - half, share), max(middle + half, share)
    return Interval(share, max(low, 0.0), min(high, 1.0))


def roc_auc(
    scores: Sequence[float], labels: Sequence[bool], *, confidence: float = 0.95
) -> Interval:
    """Area under the ROC curve: how often a bad reply scores above a harmless one; a tie is half.

    The interval is DeLong's, normal in the logit. Where it has no width, because no score is out
    of order, all are or all are equal, it is Wilson's of as many rows as the rarer label has.

    ``labels``: both must occur.

    Source: DeLong, DeLong and Clarke-Pearson, Biometrics 44 (1988), 837-845, computed by midranks
    as in Sun and Xu, IEEE Signal Processing Letters 21 (2014), 1389-1393; logit as in Pepe, "The
    statistical evaluation of medical tests" (2003), section 5.2.
    """
    from scipy.special import expit, logit
    from scipy.stats import rankdata

    values, is_bad = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=bool)
    bad, harmless = values[is_bad], values[~is_bad]
    ranks = rankdata(values)
    above = (ranks[is_bad] - rankdata(bad)) / len(harmless)
    below = 1.0 - (ranks[~is_bad] - rankdata(harmless)) / len(bad)
    area = float(above.mean())
    error = math.sqrt(_variance_of_mean(above) + _variance_of_mean(below))
    if error == 0.0:
        rarer = min(len(bad), len(harmless))
        return proportion(area * rarer, rarer, confidence=confidence)
    half = _z(confidence) * error / (area * (1.0 - area))
    return Interval(area, float(expit(logit(area) - half)), float(expit(logit(area) + half)))


def brier_score(scores: Sequence[float], labels: Sequence[bool]) -> float:
    """Mean squared difference of score and label, in [0, 1]; a constant score of 0.5 gives 0.25.

    Source: Brier, Monthly Weather Review 78 (1950), 1-3.
    """
    gaps = (score - label for score, label in zip(scores, labels, strict=True))
    return math.fsum(gap**2 for gap in gaps) / len(scores)


def reliability(
    scores: Sequence[float],
    labels: Sequence[bool],
    *,
    num_bins: int = NUM_BINS,
    confidence: float = 0.95,
) -> tuple[Bin, ...]:
    """Rows in bins of equal score width: for a calibrated judge, score and bad rate agree.

    Source: DeGroot and Fienberg, The Statistician 32 (1983), 12-22.
    """
    values, is_bad = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=bool)
    places = np.minimum((values * num_bins).astype(int), num_bins - 1)
    bins = []
    for place in range(num_bins):
        own = places == place
        count = int(own.sum())
        mean = float(values[own].mean()) if count else math.nan
        rate = proportion(int(is_bad[own].sum()), count, confidence=confidence)
        bins.append(Bin(place / num_bins, (place + 1) / num_bins, count, mean, rate))
    return tuple(bins)


def calibration_error(bins: Sequence[Bin]) -> float:
    """Mean gap of score and bad rate over the bins, by their rows (arXiv:1706.04599, eq. 3)."""
    filled = [own for own in bins if own.num_rows]
    num_rows = sum(own.num_rows for own in filled)
    gaps = (own.num_rows * abs(own.mean_score - own.bad_rate.value) for own in filled)
    return math.fsum(gaps) / num_rows if num_rows else math.nan


def best_threshold(
    scores: Sequence[float], labels: Sequence[bool], *, by: Literal["youden", "f1"]
) -> BestThreshold:
    """The observed score at which a criterion is highest.

    Args:
        labels: Both must occur.
        by: ``youden`` is sensitivity + specificity - 1; ``f1`` the harmonic mean of precision and
            recall.

    Source:
        Youden, Cancer 3 (1950), 32-35; van Rijsbergen, "Information retrieval" (1979), chapter 7.
    """
    values, is_bad = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=bool)
    order = np.argsort(-values)
    ranked = values[order]
    # The last row of each score: rows of one score are flagged together.
    ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))
    hits = np.cumsum(is_bad[order])[ends]
    alarms = ends + 1 - hits
    num_bad = float(is_bad.sum())
    sensitivity, false_rate = hits / num_bad, alarms / (len(values) - num_bad)
    # hits + alarms are flagged, num_bad should be.
    f1 = 2.0 * hits / (hits + alarms + num_bad)
    merit = f1 if by == "f1" else sensitivity - false_rate
    place = int(np.argmax(merit))
    return BestThreshold(
        threshold=float(ranked[ends[place]]),
        value=float(merit[place]),
        sensitivity=float(sensitivity[place]),
        specificity=float(1.0 - false_rate[place]),
    )


def _variance_of_mean(values: NDArray[np.float64]) -> float:
    return float(values.var(ddof=1)) / len(values) if len(values) > 1 else 0.0


def _z(confidence: float) -> float:
    from scipy.stats import norm

    return float(norm.ppf((1.0 + confidence) / 2.0))
