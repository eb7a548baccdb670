"""Resamples of a table whose rows are seed prompts, each drawn whole, and tries worth a gain."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from astra_core.errors import ShapeError
from astra_core.metrics.statistics import Interval
from astra_core.seeding import derive_key, generator

# Resamples drawn at a time, which limits memory to this number times the number of prompts.
_BATCH = 1000


def resampled_means(
    table: NDArray[np.float64], *, num_resamples: int, seed: int
) -> NDArray[np.float64]:
    """Column means of every resample of the rows, shape [num_resamples, columns].

    Tables with equally many rows are resampled alike, so that differences of two of them are
    paired.

    Raises ShapeError if there is no row.
    """
    if table.ndim != 2 or not len(table):
        msg = f"table must hold one row per prompt, got shape {table.shape}; evaluate some"
        raise ShapeError(msg)
    rng = generator(derive_key(seed, "resampled prompts"))
    shares = np.full(len(table), 1.0 / len(table))
    sizes = [min(_BATCH, num_resamples - start) for start in range(0, num_resamples, _BATCH)]
    drawn = [rng.multinomial(len(table), shares, size=size) @ table for size in sizes]
    means: NDArray[np.float64] = np.concatenate(drawn) / len(table)
    return means


def ends_of(
    lows: NDArray[np.float64], highs: NDArray[np.float64], *, confidence: float
) -> tuple[float, float]:
    """The percentiles between which a share ``confidence`` of the draws lies.

    Args:
        lows: The lower bound of each draw; NaN is left out.
        highs: The upper bound of each draw, equal to the lower one for a known draw.
    """
    if np.isnan(lows).all():
        return np.nan, np.nan
    tail = (1.0 - confidence) / 2.0
    return float(np.nanquantile(lows, tail)), float(np.nanquantile(highs, 1.0 - tail))


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

    ``trained``: success rate of each prompt; NaN is left out.
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
