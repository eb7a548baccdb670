"""What all losses over pairs check and compute first."""

from jaxtyping import Float
from torch import Tensor

from astra_core.algorithms.functional.shapes import require_rank, require_same_shape
from astra_core.errors import ConfigurationError


def scaled_margins(
    chosen: Float[Tensor, " N"], rejected: Float[Tensor, " N"], beta: float
) -> Float[Tensor, " N"]:
    """``beta`` times the log-ratio of the better probe minus that of its sibling."""
    return beta * margins(chosen, rejected, beta)


def margins(
    chosen: Float[Tensor, " N"], rejected: Float[Tensor, " N"], beta: float
) -> Float[Tensor, " N"]:
    """The log-ratio of the better probe minus that of its sibling, nats."""
    require_pairs(chosen, rejected, beta)
    return chosen - rejected


def require_pairs(chosen: Float[Tensor, " N"], rejected: Float[Tensor, " N"], beta: float) -> None:
    """Checks that the two sides are one number per pair, and ``beta`` is positive."""
    if not beta > 0:
        msg = f"beta must be positive, got {beta}; 0.1 is the usual start"
        raise ConfigurationError(msg)
    require_rank(1, chosen=chosen)
    require_same_shape(chosen=chosen, rejected=rejected)
