"""Linear layers that multiply in fp32 by the fastest route the processor has, in training too.

On processors with AVX-512 but without AMX the route that oneDNN calls ``bf16`` multiplies fp32
matrices twice as fast as torch's default, with the same rounding. Elsewhere the same switch does
round to bf16, so it is tried out first and used only where it is exact. It slows the attention
kernels, so it is set around the products of linear layers and nowhere else. On processors with
AMX large products are taken as three of bf16 instead (``split_product``).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from astra_core.engine.products.linear_layers import linear_layers, matrix_of, replaced_forwards
from astra_core.engine.products.rounding import rounding_error
from astra_core.engine.products.split_linear import SharedInput, SplitLinear
from astra_core.engine.products.split_product import has_split_product, is_worth_splitting

# Of the largest entry; an fp32 sum over a thousand products stays a hundred times below it, and
# rounding to bf16 is a hundred times above.
_TOLERANCE = 2e-5
_SIZE = 192


@contextmanager
def routed_linears(model: Any) -> Iterator[None]:
    """Runs the body with the linear layers on the fast route, if there is one that is exact.

    The weights must not change inside of the body.
    """
    shared = SharedInput()
    forwards = {layer: _routed_forward(layer, shared) for layer in linear_layers(model)}
    with replaced_forwards({layer: own for layer, own in forwards.items() if own is not None}):
        yield


def _routed_forward(layer: Any, shared: SharedInput) -> Callable[[Tensor], Tensor] | None:
    if is_exact():
        return partial(_forward, layer)
    # Of a large frozen model the halves would be the memory that its adapters were to spare.
    is_trained = layer.weight.requires_grad and is_worth_splitting(layer.weight)
    return SplitLinear(layer, shared) if is_trained and has_split_product() else None


@cache
def is_exact() -> bool:
    """True when this processor has the route and it rounds no worse than fp32 does."""
    numbers = torch.Generator().manual_seed(0)
    left, right = torch.randn(2, _SIZE, _SIZE, generator=numbers, dtype=torch.float32, device="cpu")
    exact = left.double() @ right.double()
    try:
        with _route():
            found = left @ right
    except (AttributeError, RuntimeError):
        return False
    return rounding_error(found, exact) < _TOLERANCE


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
    found: Tensor = RoutedProduct.apply(rows.flatten(0, -2), matrix_of(layer), layer.bias)  # type: ignore[no-untyped-call]
    return found.view(*rows.shape[:-1], -1)


@contextmanager
def _route() -> Iterator[None]:
    switch: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = switch.fp32_precision
    switch.fp32_precision = "bf16"
    try:
        yield
    finally:
        switch.fp32_precision = before
