"""The rounding error of a way of multiplying, which decides whether it is accepted."""

from torch import Tensor


def rounding_error(found: Tensor, exact: Tensor) -> float:
    """The largest deviation, as a share of the exact result's largest entry; NaN of a NaN.

    Args:
        found: In any precision.
        exact: The same in float64.
    """
    return float((found - exact).abs().max() / exact.abs().max())
