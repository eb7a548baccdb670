"""The routes that fp32 products of training can take, and which of them a machine has.

``plain`` is torch's own product. ``fast`` is the route that oneDNN calls ``bf16``: on processors
with AVX-512 but without AMX it multiplies fp32 matrices twice as fast as torch's default, with the
same rounding. Elsewhere the same switch rounds to bf16, so a trial accepts it only where it is
exact. It slows the attention kernels, so it is set only around the products of linear layers.
``split`` computes a large product as three of bf16, on processors with AMX (``split_product``).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal

import torch

from astra_core.engine.products.rounding import rounding_error
from astra_core.engine.products.split_product import has_split_product

Route = Literal["plain", "fast", "split"]

# Of the largest entry; an fp32 sum over a thousand products stays a hundred times below it, and
# rounding to bf16 is a hundred times above.
_TOLERANCE = 2e-5
_SIZE = 192


def open_route(device_type: str) -> Route:
    """The fastest route of a device that is as exact as fp32, by trial."""
    if device_type != "cpu":
        return "plain"
    if is_exact():
        return "fast"
    return "split" if has_split_product() else "plain"


@cache
def is_exact() -> bool:
    """True when this processor has the fast route and it rounds no worse than fp32 does."""
    numbers = torch.Generator().manual_seed(0)
    left, right = torch.randn(2, _SIZE, _SIZE, generator=numbers, dtype=torch.float32, device="cpu")
    exact = left.double() @ right.double()
    try:
        with fast_route():
            found = left @ right
    except (AttributeError, RuntimeError):
        return False
    return rounding_error(found, exact) < _TOLERANCE


@contextmanager
def fast_route() -> Iterator[None]:
    """Runs the body, which must only multiply matrices, on the fast route."""
    switch: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = switch.fp32_precision
    switch.fp32_precision = "bf16"
    try:
        yield
    finally:
        switch.fp32_precision = before
