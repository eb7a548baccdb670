"""Linear layers that multiply in fp32 by the fastest route the processor has, in training too.

On processors with AVX-512 but without AMX the route that oneDNN calls ``bf16`` multiplies fp32
matrices twice as fast as torch's default, with the same rounding. Elsewhere the same switch does
round to bf16, so it is tried out first and used only where it is exact. It slows the attention
kernels, so it is set around the products of linear layers and nowhere else. On processors with
AMX large products are taken as three of bf16 instead (``split_product``).
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers.pytorch_utils import Conv1D

from astra_core.models.split_linear import SplitLinear
from astra_core.models.split_product import has_split_product, is_worth_splitting

# Of the largest entry; an fp32 sum over a thousand products stays a hundred times below it, and
# rounding to bf16 is a hundred times above.
_TOLERANCE = 2e-5
_SIZE = 192


@contextmanager
def routed_linears(model: Any) -> Iterator[None]:
    """Runs the body with the linear layers on the fast route, if there is one that is exact.

    The weights must not change inside of the body.
    """
    kinds = (torch.nn.Linear, Conv1D)
    # Not their subclasses: an adapter around a layer does more than multiply.
    layers = [layer for layer in model.modules() if type(layer) in kinds]
    for layer in layers:
        _route_layer(layer)
    try:
        yield
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)


def _route_layer(layer: Any) -> None:
    if is_exact():
        layer.forward = partial(_forward, layer)
    elif has_split_product() and is_worth_splitting(layer.weight):
        layer.forward = SplitLinear(layer)


@cache
def is_exact() -> bool:
    """True when this processor has the route and it rounds no worse than fp32 does."""
    numbers = torch.Generator().manual_seed(0)
    left, right = torch.randn(2, _SIZE, _SIZE, generator=numbers)
    exact = left.double() @ right.double()
    try:
        with _route():
            found = left @ right
    except (AttributeError, RuntimeError):
        return False
    return float((found - exact).abs().max()) < _TOLERANCE * float(exact.abs().max())


@contextmanager
def fast_route() -> Iterator[None]:
    """Runs the body, which is to multiply matrices and do nothing else, on the route if exact."""
    with _route() if is_exact() else nullcontext():
        yield


class RoutedProduct(torch.autograd.Function):
    """``rows @ matrix + bias`` and its gradients, each product on the fast route."""

    @staticmethod
    def forward(
        ctx: Any, rows: Float[Tensor, "N I"], matrix: Float[Tensor, "I O"], bias: Tensor | None
    ) -> Float[Tensor, "N O"]:
        """The product."""
        ctx.save_for_backward(rows, matrix)
        ctx.has_bias = bias is not None
        with _route():
            return rows @ matrix if bias is None else torch.addmm(bias, rows, matrix)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of rows, matrix and bias, as far as they are needed."""
        (outer,) = gradients
        rows, matrix = ctx.saved_tensors
        needs_rows, needs_matrix, needs_bias = ctx.needs_input_grad
        with _route():
            return (
                outer @ matrix.t() if needs_rows else None,
                rows.t() @ outer if needs_matrix else None,
                outer.sum(dim=0) if ctx.has_bias and needs_bias else None,
            )


def _forward(layer: Any, rows: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
    found: Tensor = RoutedProduct.apply(rows.flatten(0, -2), _matrix(layer), layer.bias)  # type: ignore[no-untyped-call]
    return found.view(*rows.shape[:-1], -1)


def _matrix(layer: Any) -> Float[Tensor, "I O"]:
    # transformers' Conv1D stores its matrix the other way round.
    matrix: Tensor = layer.weight if type(layer) is Conv1D else layer.weight.t()
    return matrix


@contextmanager
def _route() -> Iterator[None]:
    switch: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = switch.fp32_precision
    switch.fp32_precision = "bf16"
    try:
        yield
    finally:
        switch.fp32_precision = before
