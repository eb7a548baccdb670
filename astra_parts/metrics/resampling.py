"""Resamples of a table whose rows are seed prompts: the unit that is drawn is the whole row."""

import numpy as np
from numpy.typing import NDArray

from astra_core.errors import ShapeError
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
