"""The rounding error of a way of multiplying, which decides whether it is accepted."""

from torch import Tensor


def rounding_error(found: Tensor, exact: Tensor) -> float:
    """The largest deviation as a share of the largest of ``exact``, in float64; NaN of a NaN."""
    return float((found - exact).abs().max() / exact.abs().max())
