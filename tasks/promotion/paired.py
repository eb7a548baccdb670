"""Whether a mean of paired differences lies above a bound: the test on which the gate decides."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from astra_core.errors import DataError

# One imagined pair in favour of either side: prompts with equal outcomes would otherwise have no
# sampling error at all (Agresti and Min, Statistics in Medicine 24, 2005).
_IMAGINED = (1.0, -1.0)


@dataclass(frozen=True, slots=True)
class Paired:
    """A mean difference with its sampling error."""

    centre: float
    error: float
    freedom: int

    def p_value(self, bound: float = 0.0) -> float:
        """Probability of a mean at least this high if the true one is ``bound``, by Student's t."""
        from scipy.special import stdtr

        if self.error == 0.0:
            return float(self.centre <= bound)
        return float(stdtr(self.freedom, (bound - self.centre) / self.error))


def t_test(differences: Sequence[float] | NDArray[np.float64], *, imagined: bool = True) -> Paired:
    """The mean of the differences with its error.

    ``imagined``: adds a pair in favour of either side, for differences in [-1, 1].

    Raises DataError if there are fewer than two.
    """
    found = np.asarray(differences, dtype=np.float64)
    if len(found) < 2:
        msg = f"a paired test must have at least two differences, got {len(found)}; examine more"
        raise DataError(msg)
    sample = np.concatenate([found, _IMAGINED]) if imagined else found
    error = float(sample.std(ddof=1) / np.sqrt(len(sample)))
    return Paired(float(sample.mean()), error, len(sample) - 1)
