"""Linear layers whose products over many rows are taken as three of bf16, with gradients.

A layer's weights are split once, for every batch and both passes, at four bytes per weight. Its
input is split anew for the gradient of the weights: layers that share an input, as queries, keys
and values do, would each keep halves of their own.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from astra_core.models.linear_layers import matrix_of
from astra_core.models.split_product import MIN_ROWS, Halves, product


class SplitLinear:
    """The forward pass of a ``Linear`` or ``Conv1D`` whose weights do not change meanwhile."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self._halves: Halves | None = None

    def __call__(self, rows: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
        """What the layer itself makes of the rows, up to rounding; few rows it is asked for."""
        flat = rows.reshape(-1, rows.shape[-1])
        if len(flat) < MIN_ROWS or rows.dtype != torch.float32:
            found: Tensor = type(self._layer).forward(self._layer, rows)
            return found
        matrix = matrix_of(self._layer)
        if self._halves is None:
            self._halves = Halves.of(matrix.detach())
        found = SplitProduct.apply(flat, matrix, self._layer.bias, self._halves)  # type: ignore[no-untyped-call]
        return found.view(*rows.shape[:-1], -1)


class SplitProduct(torch.autograd.Function):
    """``rows @ matrix + bias`` and its gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Float[Tensor, "N I"],
        matrix: Float[Tensor, "I O"],
        bias: Float[Tensor, " O"] | None,
        halves: Halves,
    ) -> Float[Tensor, "N O"]:
        """The product.

        Args:
            ctx: Of the backward pass.
            rows: In fp32.
            matrix: The one that receives the gradient.
            bias: Added to every row.
            halves: Of the matrix.
        """
        ctx.save_for_backward(*halves, *([rows] if ctx.needs_input_grad[1] else []))
        ctx.has_bias = bias is not None
        ctx.is_turned = matrix.stride(0) == 1
        found = product(Halves.of(rows), halves)
        return found if bias is None else found.add_(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of rows, matrix and bias, as far as they are needed."""
        (outer,) = gradients
        high, low, *rows = ctx.saved_tensors
        needs_rows, _, needs_bias, _ = ctx.needs_input_grad
        halves = Halves.of(outer)
        return (
            product(halves, Halves(high, low).t()) if needs_rows else None,
            _matrix_gradient(Halves.of(rows[0]), halves, ctx.is_turned) if rows else None,
            outer.sum(dim=0) if ctx.has_bias and needs_bias else None,
            None,
        )


def _matrix_gradient(rows: Halves, outer: Halves, is_turned: bool) -> Float[Tensor, "I O"]:
    """In the memory order of the weights: of another the sum over batches would be slow."""
    return product(outer.t(), rows).t() if is_turned else product(rows.t(), outer)
