"""Checks of arguments: a wrong axis or a NaN must be an error, never a silent result.

What is checked has the name of its argument; ``way_out`` ends the message about a number.
"""

from torch import Tensor

from astra_core.errors import ConfigurationError, DataError, ShapeError


def require_same_shape(**tensors: Tensor) -> None:
    """Checks that all tensors have the first one's shape."""
    (first, model), *rest = tensors.items()
    for name, tensor in rest:
        if tensor.shape != model.shape:
            msg = (
                f"{name} must have the shape of {first}, {tuple(model.shape)}, "
                f"got {tuple(tensor.shape)}; slice and pad both alike"
            )
            raise ShapeError(msg)


def require_rank(rank: int, **tensors: Tensor) -> None:
    """Checks that every tensor has ``rank`` axes."""
    for name, tensor in tensors.items():
        if tensor.ndim != rank:
            msg = (
                f"{name} must have {rank} axes, got shape {tuple(tensor.shape)}; "
                f"reshape it or index the axis that is too many"
            )
            raise ShapeError(msg)


def require_finite(**tensors: Tensor) -> None:
    """Checks that no entry is NaN or infinite.

    A comparison with a NaN is false, so that it would be ranked somewhere, or make its whole group
    count as flat; an infinite one makes the others' mean infinite.
    """
    for name, tensor in tensors.items():
        wrong = ~tensor.detach().isfinite().flatten()
        if bool(wrong.any()):
            place = int(wrong.nonzero()[0])
            msg = (
                f"{name} must be finite, got {float(tensor.flatten()[place])} at place {place}; "
                "leave out what has no number"
            )
            raise DataError(msg)


def require_alike(rank: int, **tensors: Tensor) -> None:
    """Checks that the first tensor has ``rank`` axes, and all others its shape."""
    first = next(iter(tensors))
    require_rank(rank, **{first: tensors[first]})
    require_same_shape(**tensors)


def require_positive(way_out: str, **numbers: float) -> None:
    """Checks that every number is above 0."""
    for name, number in numbers.items():
        if not number > 0:
            msg = f"{name} must be positive, got {number}; {way_out}"
            raise ConfigurationError(msg)


def require_share(way_out: str, **numbers: float) -> None:
    """Checks that every number lies in [0, 1]."""
    for name, number in numbers.items():
        if not 0 <= number <= 1:
            msg = f"{name} must lie in [0, 1], got {number}; {way_out}"
            raise ConfigurationError(msg)
