"""Linear layers whose products over many rows are computed as three of bf16, with gradients.

A layer's weights are split once, for every batch and both passes, at four bytes per weight. So is
its input, whose halves are kept for the gradient of the weights instead of the input itself;
layers that share an input, as queries, keys and values do, share its halves.
"""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from astra_core.engine.products.linear_layers import matrix_of
from astra_core.engine.products.split_product import MIN_ROWS, Halves, product


class SharedInput:
    """The halves of the last input of a model's layers."""

    def __init__(self) -> None:
        self._rows: Callable[[], Tensor | None] = lambda: None
        self._version = 0
        self._halves: Halves | None = None

    def halves(self, rows: Float[Tensor, "*B I"]) -> Halves:
        """Of the rows as a matrix; kept until there are others, or the rows are gone."""
        matrix = rows.detach().reshape(-1, rows.shape[-1])
        if rows.is_inference():  # it has no version counter
            return Halves.of(matrix)
        version = rows._version  # noqa: SLF001 - torch has no other name for it
        if self._halves is None or self._rows() is not rows or self._version != version:
            self._halves = None
            self._rows, self._version = weakref.ref(rows, self._forget), version
            self._halves = Halves.of(matrix)
        return self._halves

    def _forget(self, gone: Callable[[], Tensor | None]) -> None:
        if gone is self._rows:
            self._halves = None


class SplitLinear:
    """The forward pass of a ``Linear`` or ``Conv1D`` in fp32 whose weights do not change meanwhile.

    ``shared``: of all layers of its model.
    """

    def __init__(self, layer: Any, shared: SharedInput) -> None:
        self._layer = layer
        self._shared = shared
        self._halves: Halves | None = None

    def __call__(self, rows: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
        """The layer's own result up to rounding; for few rows the layer itself computes it."""
        flat = rows.reshape(-1, rows.shape[-1])
        if len(flat) < MIN_ROWS or rows.dtype != torch.float32:
            found: Tensor = type(self._layer).forward(self._layer, rows)
            return found
        matrix = matrix_of(self._layer)
        if self._halves is None:
            # Training could not keep those of a read in inference mode.
            with torch.inference_mode(mode=False):
                self._halves = Halves.of(matrix.detach())
        split = self._shared.halves(rows)
        found = SplitProduct.apply(flat, matrix, self._layer.bias, split, self._halves)  # type: ignore[no-untyped-call]
        return found.view(*rows.shape[:-1], -1)


class SplitProduct(torch.autograd.Function):
    """``rows @ matrix + bias`` and its gradients."""

    @staticmethod
    def forward(  # noqa: PLR0917  # torch gives them by position
        ctx: Any,
        rows: Float[Tensor, "N I"],
        matrix: Float[Tensor, "I O"],
        bias: Float[Tensor, " O"] | None,
        split: Halves,
        halves: Halves,
    ) -> Float[Tensor, "N O"]:
        """The product; ``split`` are the rows in halves, and ``halves`` those of the matrix."""
        del rows
        ctx.save_for_backward(*halves, *(split if ctx.needs_input_grad[1] else []))
        ctx.has_bias = bias is not None
        ctx.is_turned = matrix.stride(0) == 1
        found = product(split, halves)
        return found if bias is None else found.add_(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of rows, matrix and bias, as far as they are needed."""
        (outer,) = gradients
        high, low, *rows = ctx.saved_tensors
        needs_rows, _, needs_bias, *_ = ctx.needs_input_grad
        halves = Halves.of(outer)
        return (
            product(halves, Halves(high, low).t()) if needs_rows else None,
            _matrix_gradient(Halves(*rows), halves, ctx.is_turned) if rows else None,
            outer.sum(dim=0) if ctx.has_bias and needs_bias else None,
            None,
            None,
        )


def _matrix_gradient(rows: Halves, outer: Halves, is_turned: bool) -> Float[Tensor, "I O"]:
    """In the memory order of the weights: in another the sum over batches would be slow."""
    return product(outer.t(), rows).t() if is_turned else product(rows.t(), outer)
