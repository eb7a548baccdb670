"""Linear layers whose products over many rows are taken as three of bf16, with gradients.

What is split once is used as often as it is needed: a layer's weights for every batch and both
passes, its input for the product and for the gradient of the weights.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers.pytorch_utils import Conv1D

from astra_core.models.split_product import MIN_ROWS, Halves, product


class SplitLinear:
    """The forward pass of a ``Linear`` or ``Conv1D`` whose weights do not change meanwhile."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self._halves: Halves | None = None

    def __call__(self, rows: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
        """What the layer itself makes of the rows, up to rounding; few rows it is asked for."""
        flat = rows.flatten(0, -2)
        if len(flat) < MIN_ROWS or rows.dtype != torch.float32:
            found: Tensor = type(self._layer).forward(self._layer, rows)
            return found
        if self._halves is None:
            self._halves = Halves.of(self._layer.weight.detach())
        # transformers' Conv1D stores its matrix the other way round.
        is_turned = type(self._layer) is not Conv1D
        matrix = self._layer.weight.t() if is_turned else self._layer.weight
        halves = self._halves.t() if is_turned else self._halves
        found = SplitProduct.apply(flat, matrix, self._layer.bias, halves)  # type: ignore[no-untyped-call]
        return found.view(*rows.shape[:-1], -1)


class SplitProduct(torch.autograd.Function):
    """``rows @ matrix + bias`` and its gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Float[Tensor, "N I"],
        matrix: Float[Tensor, "I O"],  # noqa: ARG004 - receives the gradient
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
        own = Halves.of(rows)
        needs_matrix = ctx.needs_input_grad[1]
        ctx.save_for_backward(*halves, *(own if needs_matrix else ()))
        ctx.has_bias = bias is not None
        found = product(own, halves)
        return found if bias is None else found.add_(bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of rows, matrix and bias, as far as they are needed."""
        (outer,) = gradients
        high, low, *own = ctx.saved_tensors
        needs_rows, needs_matrix, needs_bias, _ = ctx.needs_input_grad
        halves = Halves.of(outer)
        return (
            product(halves, Halves(high, low).t()) if needs_rows else None,
            product(Halves(*own).t(), halves) if needs_matrix else None,
            outer.sum(dim=0) if ctx.has_bias and needs_bias else None,
            None,
        )
