"""What all losses over pairs check and compute first."""

from jaxtyping import Float
from torch import Tensor

from astra_core.algorithms.functional.shapes import require_alike, require_positive

PerPair = Float[Tensor, " N"]
"""One number for each pair."""


def scaled_margins(chosen: PerPair, rejected: PerPair, beta: float) -> PerPair:
    """``beta`` times the log-ratio of the better probe minus that of its sibling."""
    return beta * margins(chosen, rejected, beta)


def margins(chosen: PerPair, rejected: PerPair, beta: float) -> PerPair:
    """The log-ratio of the better probe minus that of its sibling, nats."""
    require_pairs(chosen, rejected, beta)
    return chosen - rejected


def require_pairs(chosen: PerPair, rejected: PerPair, beta: float) -> None:
    """Checks that the two sides are one number per pair, and ``beta`` is positive."""
    require_positive("0.1 is the usual start", beta=beta)
    require_alike(1, chosen=chosen, rejected=rejected)
