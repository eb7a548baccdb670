"""Running mean and variance of a term, kept from experience to experience."""

import math
from collections.abc import Sequence

import torch

# Values are clipped at this many standard deviations, as observations and rewards are in the
# usual implementations of PPO.
_MAX_DEVIATIONS = 10.0
_MIN_DEVIATION = 1e-6


class RunningScale:
    """Mean and variance of all values so far, merged batch by batch.

    Sources:
        Welford, Technometrics 4 (1962); the merge of two sets is Chan, Golub and LeVeque (1979).
        Scaling each part of a reward before they are summed is the idea of GDPO (arXiv:2601.05242).

    Attributes:
        moments: Count, mean, and sum of squared deviations.
    """

    def __init__(self) -> None:
        self.moments = torch.zeros(3, dtype=torch.float64)

    def scaled(self, value: float) -> float:
        """Standard deviations above the mean; the value itself while fewer than two are known."""
        count, mean, squares = self.moments.tolist()
        if count < 2.0:
            return value
        deviations: float = (value - mean) / max(math.sqrt(squares / count), _MIN_DEVIATION)
        return max(-_MAX_DEVIATIONS, min(_MAX_DEVIATIONS, deviations))

    def add(self, values: Sequence[float]) -> None:
        """Adds the values of an experience to the moments."""
        if not values:
            return
        count, mean, squares = self.moments.tolist()
        own = math.fsum(values) / len(values)
        own_squares = math.fsum((value - own) ** 2 for value in values)
        total, apart = count + len(values), own - mean
        merged = (
            total,
            mean + apart * len(values) / total,
            squares + own_squares + apart**2 * count * len(values) / total,
        )
        self.moments.copy_(torch.tensor(merged, dtype=torch.float64))
