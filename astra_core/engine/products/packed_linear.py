"""Linear layers whose weights are packed: in the layout that the processor multiplies fastest.

oneDNN reorders a weight matrix before every product that is not large. Done once, the products of
decoding take as little as half the time. The operators are private ones of torch: where they are
missing or differ by more than rounding, the public product is used.

Only the products are in bf16: everything between the layers stays in its type, as under autocast,
whose casting of every weight at every step would take longer than the products.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from astra_core.engine.memory import drop_file_pages
from astra_core.engine.products.linear_layers import linear_layers, matrix_of, replaced_forwards
from astra_core.engine.products.rounding import rounding_error

# Below this many weights a layer's product is too short for their order to matter.
_MIN_WEIGHTS = 100_000
# Rows of the products for which the order is chosen; it is correct for any number.
_ROWS = 64
# Of the largest output; rounding of a sum over a hundred products stays below it.
_TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}

# While their scope lasts, by address and layout of the weights: models that share them share it.
_COPIES: dict[tuple[Any, ...], Tensor] = {}


@contextmanager
def packed_linears(
    model: Any, *, packs: Collection[torch.dtype], dtype: torch.dtype = torch.float32
) -> Iterator[None]:
    """Runs the body with reordered copies of the weights in use, without gradient.

    The weights must not change inside the body.

    Args:
        model: A model with fp32 weights.
        packs: ``Machine.packs``; products of other types are the public ones.
        dtype: Of the products; sums are taken in fp32 either way.
    """
    is_packed = dtype in packs
    layers = [
        layer for layer in linear_layers(model) if _is_worth_it(layer, dtype, is_packed=is_packed)
    ]
    others = dict(_COPIES)
    try:
        forwards = {layer: _packed_forward(layer, dtype, is_packed=is_packed) for layer in layers}
        if _COPIES.keys() != others.keys():
            drop_file_pages([layer.weight for layer in layers])  # the copies serve meanwhile
        with replaced_forwards(forwards):
            yield
    finally:
        for key in _COPIES.keys() - others.keys():
            del _COPIES[key]


def _is_worth_it(layer: Any, dtype: torch.dtype, *, is_packed: bool) -> bool:
    # One with another forward is already packed, by an outer scope or for a second speaker.
    if layer.weight.dtype != torch.float32 or "forward" in vars(layer):
        return False
    if dtype != torch.float32:
        return True
    is_large = layer.weight.numel() >= _MIN_WEIGHTS
    return is_large and layer.weight.device.type == "cpu" and is_packed


def _packed_forward(
    layer: Any, dtype: torch.dtype, *, is_packed: bool
) -> Callable[[Tensor], Tensor]:
    bias = None if layer.bias is None else layer.bias.detach().to(dtype)
    is_packed = is_packed and layer.weight.device.type == "cpu"
    matrix = _copy(layer, dtype, is_packed=is_packed)
    plain = partial(torch.nn.functional.linear, weight=matrix, bias=bias)
    product = _packed_product(matrix, bias) if is_packed else plain
    if dtype == torch.float32:
        return product
    return lambda rows: product(rows.to(dtype)).to(rows.dtype)


def _copy(layer: Any, dtype: torch.dtype, *, is_packed: bool) -> Tensor:
    """The layer's matrix in this type and order, made once for all layers of these weights."""
    matrix = matrix_of(layer).t().detach()
    key = (matrix.data_ptr(), matrix.shape, matrix.stride(), dtype, is_packed)
    if key not in _COPIES:
        matrix = matrix.to(dtype).contiguous()
        _COPIES[key] = _reorder(matrix) if is_packed else matrix
    return _COPIES[key]


def _reorder(matrix: Float[Tensor, "O I"]) -> Tensor:
    operators: Any = torch.ops.mkldnn
    reordered: Tensor = operators._reorder_linear_weight(matrix, _ROWS)  # noqa: SLF001
    return reordered


def _packed_product(
    reordered: Tensor, bias: Float[Tensor, " O"] | None
) -> Callable[[Tensor], Tensor]:
    operators: Any = torch.ops.mkldnn
    multiply = operators._linear_pointwise  # noqa: SLF001
    return lambda rows: multiply(rows, reordered, bias, "none", [], "")


@cache
def has_packed_product(dtype: torch.dtype) -> bool:
    """True if torch's private operators exist and agree with the public ones."""
    numbers = torch.Generator().manual_seed(0)
    matrix, rows = (torch.randn(n, 160, generator=numbers).to(dtype) for n in (96, 5))
    bias = torch.randn(96, generator=numbers).to(dtype)
    try:
        found = _packed_product(_reorder(matrix), bias)(rows)
    except (AttributeError, RuntimeError):
        return False
    exact = torch.nn.functional.linear(rows.double(), matrix.double(), bias.double())
    return rounding_error(found, exact) < _TOLERANCE[dtype]
