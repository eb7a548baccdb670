"""What a gain is worth in tries of the untrained attacker, the cheapest way to get the same."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from astra_core.metrics.statistics import Interval
from astra_parts.metrics.resampling import ends_of, resampled_means


def equivalent_tries(
    trained: Sequence[float],
    untrained: Sequence[float],
    *,
    num_resamples: int,
    confidence: float,
    seed: int,
) -> Interval:
    """How many independent untrained rollouts of a prompt succeed as often as a trained one.

    ``ln(1 - trained) / ln(1 - untrained)``, with its percentile interval over prompts. It takes all
    prompts as equally hard; where they differ, more tries are needed. A rate of 0 or 1 counts as
    half a prompt more or less.

    Args:
        trained: Success rate of each prompt; NaN is left out.
    """
    table = np.column_stack([trained, untrained]).astype(np.float64)
    table = table[~np.isnan(table).any(axis=1)]
    if not len(table):
        return Interval(np.nan, np.nan, np.nan)
    drawn = _tries(resampled_means(table, num_resamples=num_resamples, seed=seed), len(table))
    value = float(_tries(table.mean(axis=0, keepdims=True), len(table))[0])
    return Interval(value, *ends_of(drawn, drawn, confidence=confidence))


def _tries(rates: NDArray[np.float64], num_prompts: int) -> NDArray[np.float64]:
    half = 0.5 / num_prompts
    missed = np.log1p(-np.clip(rates, half, 1.0 - half))
    return np.asarray(missed[:, 0] / missed[:, 1])
