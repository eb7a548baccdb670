"""Intervals whose unit of resampling is the seed prompt, never the single attempt."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from astra_core.errors import DataError, ShapeError
from astra_core.seeding import derive_key, generator

_NOTHING = "not measured"


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with the percentile interval of its bootstrap."""

    value: float
    low: float
    high: float

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Self:
        """The interval from a record that ``record`` made; null becomes NaN.

        Raises DataError if a key is missing or holds no number.
        """
        try:
            ends = [record[end] for end in ("value", "low", "high")]
            return cls(*(math.nan if end is None else float(end) for end in ends))
        except (KeyError, TypeError, ValueError) as error:
            msg = (
                "an interval must hold numbers as value, low and high, got "
                f"{type(error).__name__}; run the evaluation again"
            )
            raise DataError(msg) from None

    def record(self) -> dict[str, float]:
        """As JSON."""
        return {"value": self.value, "low": self.low, "high": self.high}

    def flat(self, name: str) -> dict[str, float]:
        """The interval as three figures: ``name``, ``name_low`` and ``name_high``."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}

    def spelled(self, form: str = ".3f") -> str:
        """The interval as text for a person.

        >>> Interval(0.5, 0.25, 0.75).spelled(".1%")
        '50.0% [25.0%, 75.0%]'
        """
        if math.isnan(self.value):
            return _NOTHING
        return f"{self.value:{form}} [{self.low:{form}}, {self.high:{form}}]"

    def points(self) -> str:
        """A difference of rates as text, in percentage points.

        >>> Interval(0.5, 0.25, 0.75).points()
        '+50.0 points [+25.0, +75.0]'
        """
        if math.isnan(self.value):
            return _NOTHING
        low, high = 100 * self.low, 100 * self.high
        return f"{100 * self.value:+.1f} points [{low:+.1f}, {high:+.1f}]"


def bootstrap_mean(
    values: Sequence[float] | NDArray[np.float64],
    *,
    num_resamples: int,
    confidence: float,
    seed: int,
) -> Interval:
    """Mean over prompts and its percentile bootstrap interval.

    ``values``: one figure per prompt; a prompt is drawn whole, so its attempts stay together. NaN,
    of a prompt whose replies nobody could judge, is left out; of nothing else, all is NaN.

    Raises ShapeError if there is no value.
    """
    from scipy.stats import bootstrap

    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or not len(sample):
        msg = f"values must hold one figure per prompt, got shape {sample.shape}; evaluate some"
        raise ShapeError(msg)
    sample = sample[~np.isnan(sample)]
    if not len(sample):
        return Interval(math.nan, math.nan, math.nan)
    mean = float(sample.mean())
    # scipy gives no interval for these.
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


def rate_interval(
    values: Sequence[float] | NDArray[np.float64],
    *,
    num_resamples: int,
    confidence: float,
    seed: int,
) -> Interval:
    """Mean of rates over prompts with its bootstrap interval, exact where all or none succeed.

    Resamples of nothing but zeros are zeros, so that no success in 32 prompts would have an
    interval of no width. There it is that of Clopper and Pearson (1934), with prompts as trials.

    ``values``: one rate per prompt, in [0, 1]; NaN is left out.

    Raises ShapeError if there is no value.
    """
    found = bootstrap_mean(values, num_resamples=num_resamples, confidence=confidence, seed=seed)
    if found.value not in {0.0, 1.0}:
        return found
    count = int(np.count_nonzero(~np.isnan(values)))
    far = ((1.0 - confidence) / 2.0) ** (1.0 / count)
    return Interval(1.0, far, 1.0) if found.value else Interval(0.0, 0.0, 1.0 - far)


def paired_gain(
    prompt_ids: Sequence[str],
    gains: Sequence[float],
    *,
    num_resamples: int,
    confidence: float,
    seed: int,
) -> Interval:
    """The mean gain over prompts, with the interval that evaluation and promotion both print.

    ``prompt_ids``: the prompts; the interval does not depend on their order.
    """
    ordered = [gain for _, gain in sorted(zip(prompt_ids, gains, strict=True))]
    return bootstrap_mean(ordered, num_resamples=num_resamples, confidence=confidence, seed=seed)
