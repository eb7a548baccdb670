"""Success rates as they would be without the judge's errors, from its calibration.

A judge flags a share Se of the bad replies (sensitivity) and passes a share Sp of the harmless ones
(specificity). Of a rate p it then shows p Se + (1 - p)(1 - Sp), which Rogan and Gladen solve for p.
Over the turns of a rollout the same is done turn by turn: give each flagged turn the weight
-(1 - Se)/J and each passed one Se/J with J = Se + Sp - 1. The expected weight of a bad turn is then
0 and that of a harmless one 1, so the product over the turns of a rollout estimates whether none
was bad, provided that the judge errs independently from turn to turn. For one turn this is Rogan
and Gladen's estimate itself.

Source:
    Rogan and Gladen, American Journal of Epidemiology 107 (1978), 71-76. The interval is a
    bootstrap of both samples: prompts are drawn whole, and sensitivity and specificity are drawn
    from their Jeffreys posteriors (Brown, Cai and DasGupta, Statistical Science 16 (2001),
    101-133), so that a judge without an error on few rows is not taken to be perfect.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from astra_core.errors import ConfigurationError
from astra_core.metrics.statistics import Interval
from astra_core.seeding import derive_key, generator
from astra_parts.metrics.detection import Confusion
from astra_parts.metrics.resampling import ends_of, resampled_means

Verdicts = tuple[bool, ...]
"""The judge's verdicts on the turns of one rollout, or on a single reply: True is flagged."""


@dataclass(frozen=True, slots=True)
class Corrected:
    """A corrected rate and its resamples.

    ``draws``: the rate in every resample, in [0, 1]; NaN if the drawn judge separates nothing.
    """

    value: float
    draws: NDArray[np.float64]

    def interval(self, *, confidence: float) -> Interval:
        """The rate with its percentile interval; a NaN draw counts as both 0 and 1."""
        return _interval(self.value, self.draws, limits=(0.0, 1.0), confidence=confidence)

    def gain_over(self, before: Self, *, confidence: float) -> Interval:
        """The difference of two rates on the same prompts, paired draw by draw."""
        draws = self.draws - before.draws
        gain = self.value - before.value
        return _interval(gain, draws, limits=(-1.0, 1.0), confidence=confidence)


def check_tells(confusion: Confusion, *, where: str) -> None:
    """Checks that the judge separates bad replies from harmless ones better than chance.

    Raises ConfigurationError if sensitivity and specificity sum to 1 or less.
    """
    total = confusion.sensitivity().value + confusion.specificity().value
    # Also where one of them is NaN.
    if not total > 1.0:
        msg = (
            f"{where} must have sensitivity + specificity above 1 to correct a success rate, got "
            f"{total:.3f}; such a judge tells nothing, use another or another threshold"
        )
        raise ConfigurationError(msg)


def corrected_rate(
    rollouts: Sequence[Iterable[Verdicts]], confusion: Confusion, *, num_resamples: int, seed: int
) -> Corrected:
    """The share of rollouts in which any turn is truly bad, as a mean over prompts.

    ``rollouts``: for each prompt its rollouts; a turn without a verdict is left out of one.

    Raises ConfigurationError if the judge separates nothing.
    """
    check_tells(confusion, where="calibration")
    kinds, shares = _patterns(rollouts)
    se, sp = confusion.sensitivity().value, confusion.specificity().value
    value = shares.mean(axis=0) @ _any_bad(kinds, np.array([se]), np.array([sp]))[0]
    rng = generator(derive_key(seed, "judge errors"))
    drawn_se = _draw(rng, confusion.true_positives, confusion.num_bad, size=num_resamples)
    drawn_sp = _draw(rng, confusion.true_negatives, confusion.num_harmless, size=num_resamples)
    means = resampled_means(shares, num_resamples=num_resamples, seed=seed)
    draws = (means * _any_bad(kinds, drawn_se, drawn_sp)).sum(axis=1).clip(0.0, 1.0)
    return Corrected(float(np.clip(value, 0.0, 1.0)), draws)


def _patterns(
    rollouts: Sequence[Iterable[Verdicts]],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Numbers of flagged and passed turns, shape [kinds, 2], and each prompt's shares of them."""
    counts = [
        Counter((sum(own), len(own) - sum(own)) for own in of_prompt) for of_prompt in rollouts
    ]
    kinds = sorted(set().union(*counts)) or [(0, 0)]
    totals = [max(own.total(), 1) for own in counts]
    shares = [
        [own[kind] / total for kind in kinds] for own, total in zip(counts, totals, strict=True)
    ]
    return np.array(kinds, dtype=np.int64), np.array(shares, dtype=np.float64)


def _any_bad(
    kinds: NDArray[np.int64], se: NDArray[np.float64], sp: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Estimate that any turn is bad, for judges (rows) and kinds of rollouts (columns)."""
    informedness = se + sp - 1.0
    informedness = np.where(informedness > 0.0, informedness, np.nan)
    flagged, passed = -(1.0 - se) / informedness, se / informedness
    none_bad = flagged[:, None] ** kinds[:, 0] * passed[:, None] ** kinds[:, 1]
    estimate: NDArray[np.float64] = 1.0 - none_bad
    return estimate


def _draw(rng: np.random.Generator, count: int, total: int, *, size: int) -> NDArray[np.float64]:
    return rng.beta(count + 0.5, total - count + 0.5, size=size)


def _interval(
    value: float, draws: NDArray[np.float64], *, limits: tuple[float, float], confidence: float
) -> Interval:
    lows, highs = (np.where(np.isnan(draws), limit, draws) for limit in limits)
    return Interval(value, *ends_of(lows, highs, confidence=confidence))
