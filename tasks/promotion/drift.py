"""Whether the champion behaves differently today than when it was registered, beyond chance."""

from collections.abc import Sequence

import numpy as np

from astra_core.errors import DataError
from astra_core.metrics.statistics import Interval

# One prompt that always succeeds and one that never does, beside each sample (Agresti and Caffo,
# 2000): without them ten prompts with equal outcomes would have no sampling error at all.
_IMAGINED = (0.0, 1.0)


def drift_between(
    today: Sequence[float], registered: Sequence[float], *, confidence: float
) -> Interval:
    """Today's mean success minus the registered one, and its interval.

    Both are estimates from prompts drawn at random, so both errors count. One rate alone would lie
    outside of the other's interval by chance three times as often as the confidence says.

    ``today``: success rate of each prompt, in [0, 1].

    Raises DataError if a sample is empty.

    Source: Welch's t-interval for unequal variances (Biometrika 34, 1947).
    """
    from scipy.special import stdtrit

    if not (len(today) and len(registered)):
        msg = f"both samples must hold prompts, got {len(today)} and {len(registered)}"
        raise DataError(msg)
    samples = [np.array([*sample, *_IMAGINED]) for sample in (today, registered)]
    errors = [sample.var(ddof=1) / len(sample) for sample in samples]
    shares = [own**2 / (len(sample) - 1) for own, sample in zip(errors, samples, strict=True)]
    quantile = stdtrit(sum(errors) ** 2 / sum(shares), (1.0 + confidence) / 2.0)
    half = float(quantile * np.sqrt(sum(errors)))
    centre = float(samples[0].mean() - samples[1].mean())
    difference = float(np.mean(today) - np.mean(registered))
    return Interval(difference, centre - half, centre + half)
