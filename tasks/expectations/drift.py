"""How far the profile of a data set is from that of another: drift since data were accepted.

The distance is the population stability index, ``sum((p - q) * ln(p / q))`` over the shares ``p``
and ``q`` of the bins: below 0.1 two sets are alike, above 0.25 the shift is large by the usual
reading. Of two samples of one population it is about ``(1/m + 1/n)`` times a chi-squared variable
with one degree of freedom less than there are bins (Yurdakul and Naranjo, 2020), so small samples
differ by chance alone. A drift is called one only if it exceeds both the limit and what chance
explains.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tasks.expectations.profile import Profile

# Of one comparison of a night's eight to exceed what chance explains.
_FALSE_ALARM = 1e-3


@dataclass(frozen=True, slots=True)
class Drift:
    """How far apart two data sets are in one respect.

    Attributes:
        subject: ``prompts`` or ``rollouts``.
        what: Such as ``characters``, ``score`` or ``vocabulary``.
        index: The population stability index, at least 0.
        chance: What two samples of one population exceed once in a thousand comparisons.
    """

    subject: str
    what: str
    index: float
    chance: float
    limit: float

    @property
    def is_large(self) -> bool:
        """Whether a person should look: larger than the limit and than chance explains."""
        return self.index > self.limit and self.index > self.chance

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "is_large": self.is_large}


def drifts(
    subject: str, now: Profile, then: Profile, *, rows: tuple[int, int], limit: float
) -> tuple[Drift, ...]:
    """One for each respect that both profiles have."""
    return tuple(
        Drift(subject, what, *_index(now[what], then[what], rows), limit)
        for what in now
        if what in then and len(now[what]) == len(then[what])
    )


def _index(now: Any, then: Any, rows: tuple[int, int]) -> tuple[float, float]:
    from scipy.stats import chi2

    first, second = np.asarray(now, float), np.asarray(then, float)
    used = first + second > 0
    # An empty bin would make the index infinite.
    shares = [own[used] + 0.5 for own in (first, second)]
    p, q = (own / own.sum() for own in shares)
    index = float(np.sum((p - q) * np.log(p / q)))
    spread = sum(1 / max(number, 1) for number in rows)
    freedom = max(int(used.sum()) - 1, 1)
    return index, float(chi2.ppf(1 - _FALSE_ALARM, freedom) * spread)
