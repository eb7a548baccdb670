"""Statistics over the entries a mask keeps, defined and finite even when it keeps none.

Entries outside the mask are replaced, not multiplied by zero: ``0 * nan`` is ``nan``, and what
is in padding must not matter.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor, zeros_like

from astra_core.algorithms.functional.shapes import require_finite, require_same_shape

MIN_SPREAD = 1e-4
"""In units of the values; rounding of equal rewards must not be blown up to unit size.

Also the constant that TRL adds to the spread of a group.
"""


def masked_count(mask: Bool[Tensor, "*shape"], *, dim: int | None = None) -> Int[Tensor, "*rest"]:
    """Number of kept entries, over everything or along ``dim``."""
    return mask.sum() if dim is None else mask.sum(dim)


def masked_sum(
    values: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"], *, dim: int | None = None
) -> Float[Tensor, "*rest"]:
    """Sum of the kept values, over everything or along ``dim``; 0 where none is kept."""
    require_same_shape(values=values, mask=mask)
    kept = values.where(mask, zeros_like(values))
    return kept.sum() if dim is None else kept.sum(dim)


def masked_mean(
    values: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"], *, dim: int | None = None
) -> Float[Tensor, "*rest"]:
    """Mean of the kept values, over everything or along ``dim``; 0 where none is kept."""
    # A row without tokens is legal (the target refused at once); 0/0 would make the batch NaN.
    return masked_sum(values, mask, dim=dim) / masked_count(mask, dim=dim).clamp(min=1)


def masked_variance(
    values: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"]
) -> Float[Tensor, ""]:
    """Population variance of the kept values around their own mean; 0 where none is kept."""
    return masked_mean((values - masked_mean(values, mask)).square(), mask)


def masked_whiten(
    values: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"], *, min_spread: float = MIN_SPREAD
) -> Float[Tensor, "*shape"]:
    """Values shifted and scaled so that the kept ones have mean 0 and population variance 1.

    Entries outside the mask go through the same map, so the shape stays and nothing may be read
    into them. When the kept values hardly differ, or fewer than two are kept, the result is
    exactly zero everywhere: dividing by a spread that is only rounding would amplify noise.

    ``min_spread``: standard deviation, in units of the values, at or below which all become zero.
    """
    require_same_shape(values=values, mask=mask)
    require_finite(values=values.where(mask, zeros_like(values)))
    spread = masked_variance(values, mask).sqrt()
    # The divisor is kept away from 0 as well as the result: autograd sees both sides of `where`.
    whitened = (values - masked_mean(values, mask)) / spread.clamp(min=min_spread)
    return whitened.where(spread > min_spread, zeros_like(values))
