"""Intervals that honour the unit of resampling: the seed prompt, never the single attempt."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from astra_core.errors import ShapeError
from astra_core.seeding import derive_key, generator


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with the percentile interval of its bootstrap."""

    value: float
    low: float
    high: float

    def record(self) -> dict[str, float]:
        """As JSON."""
        return {"value": self.value, "low": self.low, "high": self.high}


def bootstrap_mean(
    values: Sequence[float] | NDArray[np.float64],
    *,
    num_resamples: int,
    confidence: float,
    seed: int,
) -> Interval:
    """Mean over prompts and its percentile bootstrap interval.

    Args:
        values: One figure per prompt; a prompt is drawn whole, so its attempts stay together.
        num_resamples: 10,000 is the field's habit.
        confidence: Probability inside the interval.
        seed: Same seed, same interval.

    Raises:
        ShapeError: There is no value.
    """
    from scipy.stats import bootstrap

    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or not len(sample):
        msg = f"values must hold one figure per prompt, got shape {sample.shape}; evaluate some"
        raise ShapeError(msg)
    mean = float(sample.mean())
    # Of which scipy makes no interval.
    if len(sample) == 1:
        return Interval(mean, mean, mean)
    result = bootstrap(
        (sample,),
        np.mean,
        n_resamples=num_resamples,
        confidence_level=confidence,
        method="percentile",
        batch=1000,
        rng=generator(derive_key(seed, "bootstrap")),
    )
    interval = result.confidence_interval
    return Interval(mean, float(interval.low), float(interval.high))
