"""Linear layers that multiply in fp32 by the route of a plan, in training too."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from astra_core.engine.products.linear_layers import linear_layers, matrix_of, replaced_forwards
from astra_core.engine.products.routes import Route, fast_route
from astra_core.engine.products.split_linear import SharedInput, SplitLinear
from astra_core.engine.products.split_product import is_worth_splitting


@contextmanager
def routed_linears(model: Any, *, route: Route) -> Iterator[None]:
    """Runs the body with the linear layers on a route, each where it is faster.

    The weights must not change inside the body.
    """
    shared = SharedInput()
    forwards = {layer: _routed_forward(layer, shared, route) for layer in linear_layers(model)}
    with replaced_forwards({layer: own for layer, own in forwards.items() if own is not None}):
        yield


def _routed_forward(
    layer: Any, shared: SharedInput, route: Route
) -> Callable[[Tensor], Tensor] | None:
    if route == "fast":
        return partial(_forward, layer)
    # The halves of a large frozen model would use the memory that adapters are to save.
    is_split = route == "split" and layer.weight.requires_grad and is_worth_splitting(layer.weight)
    return SplitLinear(layer, shared) if is_split else None


class RoutedProduct(torch.autograd.Function):
    """``rows @ matrix + bias`` and its gradients, each product on the fast route."""

    @staticmethod
    def forward(  # noqa: PLR0917  # torch gives them by position
        ctx: Any, rows: Float[Tensor, "N I"], matrix: Float[Tensor, "I O"], bias: Tensor | None
    ) -> Float[Tensor, "N O"]:
        """The product."""
        ctx.save_for_backward(rows, matrix)
        ctx.has_bias = bias is not None
        with fast_route():
            return rows @ matrix if bias is None else torch.addmm(bias, rows, matrix)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of rows, matrix and bias, as far as they are needed."""
        (outer,) = gradients
        rows, matrix = ctx.saved_tensors
        needs_rows, needs_matrix, needs_bias = ctx.needs_input_grad
        with fast_route():
            return (
                outer @ matrix.t() if needs_rows else None,
                rows.t() @ outer if needs_matrix else None,
                outer.sum(dim=0) if ctx.has_bias and needs_bias else None,
            )


def _forward(layer: Any, rows: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
    found: Tensor = RoutedProduct.apply(rows.flatten(0, -2), matrix_of(layer), layer.bias)  # type: ignore[no-untyped-call]
    return found.view(*rows.shape[:-1], -1)
