"""Linear layers whose weights lie in memory the way the processor multiplies fastest.

oneDNN reorders a weight matrix before every product that is not large; done once beforehand, the
products of decoding take up to half the time. The operators are private ones of torch: where they
are missing or differ by more than rounding, layers stay as they are.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers.pytorch_utils import Conv1D

# Below this many weights a layer's product is over before the order of its weights matters.
_MIN_WEIGHTS = 100_000
# Rows of the products that the order is chosen for; others are multiplied correctly too.
_ROWS = 64
# Of the largest output; rounding of an fp32 sum over a thousand products stays below it.
_TOLERANCE = 2e-5


@contextmanager
def packed_linears(model: Any) -> Iterator[None]:
    """Runs the body with reordered copies of the weights in use, without gradient.

    The weights must not change inside of the body.
    """
    layers = [layer for layer in model.modules() if _is_worth_it(layer)]
    for layer in layers:
        layer.forward = _packed_forward(layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _is_worth_it(layer: Any) -> bool:
    # Not their subclasses: an adapter around a layer does more than multiply.
    if type(layer) not in {torch.nn.Linear, Conv1D}:
        return False
    weight = layer.weight
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and weight.numel() >= _MIN_WEIGHTS
        and _is_sound()
    )


def _packed_forward(layer: Any) -> Callable[[Tensor], Tensor]:
    matrix = layer.weight.detach()
    # transformers' Conv1D stores its matrix the other way round.
    return _product(matrix.t().contiguous() if type(layer) is Conv1D else matrix, layer.bias)


def _product(
    matrix: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None
) -> Callable[[Tensor], Tensor]:
    operators: Any = torch.ops.mkldnn
    reordered = operators._reorder_linear_weight(matrix, _ROWS)  # noqa: SLF001
    offset = None if bias is None else bias.detach()

    def product(rows: Float[Tensor, "*B I"]) -> Float[Tensor, "*B O"]:
        found: Tensor = operators._linear_pointwise(rows, reordered, offset, "none", [], "")  # noqa: SLF001
        return found

    return product


@cache
def _is_sound() -> bool:
    """True when the private operators exist and give what the public ones give."""
    numbers = torch.Generator().manual_seed(0)
    matrix = torch.randn(96, 160, generator=numbers)
    rows, bias = torch.randn(5, 160, generator=numbers), torch.randn(96, generator=numbers)
    try:
        found = _product(matrix, bias)(rows)
    except (AttributeError, RuntimeError):
        return False
    exact = torch.nn.functional.linear(rows.double(), matrix.double(), bias.double())
    return float((found - exact).abs().max()) < _TOLERANCE * float(exact.abs().max())
