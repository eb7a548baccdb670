"""How far two judges of the same replies agree; the unit of resampling is the seed prompt."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from astra_core.metrics.statistics import Interval
from astra_parts.metrics.resampling import ends_of, resampled_means

Pair = tuple[bool, bool]
"""The verdicts of the first and the second judge on one reply: True is flagged."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How two judges agree.

    ``kappa``: cohen's kappa: 1 is full agreement, 0 that of chance; NaN if both give one and the
    same verdict to every reply.
    """

    raw: Interval
    kappa: Interval
    num_replies: int


def agreement(
    pairs: Sequence[Iterable[Pair]], *, num_resamples: int, confidence: float, seed: int
) -> Agreement:
    """Raw agreement and kappa with percentile intervals of a bootstrap over prompts.

    ``pairs``: for each prompt the verdicts on its replies; replies without both are left out.

    Source: Cohen, Educational and Psychological Measurement 20 (1960), 37-46.
    """
    table = np.array([_counts(own) for own in pairs], dtype=np.float64).reshape(-1, 4)
    num_replies = int(table.sum())
    if not num_replies:
        nothing = Interval(math.nan, math.nan, math.nan)
        return Agreement(nothing, nothing, 0)
    drawn = resampled_means(table, num_resamples=num_resamples, seed=seed)
    total = table.sum(axis=0, keepdims=True)

    def interval(figure: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> Interval:
        draws = figure(drawn)
        return Interval(float(figure(total)[0]), *ends_of(draws, draws, confidence=confidence))

    return Agreement(interval(_raw), interval(cohen_kappa), num_replies)


def cohen_kappa(tables: NDArray[np.float64]) -> NDArray[np.float64]:
    """Kappa of each row of counts: both flag, the first alone, the second alone, neither."""
    both, first, second, neither = tables.T
    total = tables.sum(axis=1)
    flagged, also = both + first, both + second
    by_chance = flagged * also + (total - flagged) * (total - also)
    # NaN without replies, and where all verdicts are of one kind.
    with np.errstate(invalid="ignore"):
        expected = by_chance / total**2
        kappa: NDArray[np.float64] = ((both + neither) / total - expected) / (1.0 - expected)
    return kappa


def _raw(tables: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):
        share: NDArray[np.float64] = (tables[:, 0] + tables[:, 3]) / tables.sum(axis=1)
    return share


def _counts(pairs: Iterable[Pair]) -> list[int]:
    own = list(pairs)
    return [
        own.count(kind) for kind in ((True, True), (True, False), (False, True), (False, False))
    ]
