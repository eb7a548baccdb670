"""Products of fp32 matrices as three of bf16, for processors that have a matrix unit for bf16 only.

An fp32 number is the sum of two bf16 numbers except for its last few bits. Of the four products of
such sums the one of both low halves is below the rounding of the others and is left out; sums are
taken in fp32. The method, with its error analysis, is that of Henry, Tang and Heinecke, "Leveraging
the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations" (arXiv:1904.06376);
torch's documentation of ``set_float32_matmul_precision`` calls it "high".

torch's own bf16 products round their results to bf16, so the three are computed by torch's MKL,
which adds into fp32. They are not used if MKL is missing, if the error exceeds that of the method,
or if the processor has no such unit (AMX).
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import BFloat16, Float
from torch import Tensor
from torch.profiler import record_function

from astra_core.engine.processor import has_amx
from astra_core.engine.products.rounding import rounding_error

MIN_ROWS = 128
"""Fewer than these are multiplied no faster in three products than in one."""
MIN_WEIGHTS = 1 << 18
"""Of a layer; splitting its input takes longer than a small one's product."""
TOLERANCE = 1e-5
"""Of the largest entry. fp32 itself stays below a tenth of it, bf16 is a hundred times above."""

# Of a matrix that is split, 1 MiB in fp32: with its halves they fit a core's second cache.
_ENTRIES_PER_PASS = 1 << 18

_ROW_MAJOR, _AS_IT_IS, _TRANSPOSED = 101, 111, 112
_LIBRARY = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"


class Halves(NamedTuple):
    """The two bf16 matrices whose sum a matrix of fp32 is, up to 2 ** -17 of each entry."""

    high: BFloat16[Tensor, "N M"]
    low: BFloat16[Tensor, "N M"]

    @classmethod
    def of(cls, numbers: Float[Tensor, "N M"]) -> "Halves":
        """Splits a matrix, as many rows at a time as stay in the processor's cache."""
        high, low = (torch.empty_like(numbers, dtype=torch.bfloat16) for _ in range(2))
        # In the order that the matrix lies in memory; both halves lie as it does.
        turned = numbers.stride(0) == 1
        lines, highs, lows = ((x.t() if turned else x) for x in (numbers, high, low))
        step = max(1, _ENTRIES_PER_PASS // max(lines.shape[1], 1))
        rest = numbers.new_empty(min(step, len(lines)), lines.shape[1])
        for begin in range(0, len(lines), step):
            some = slice(begin, begin + step)
            left = rest[: len(lines[some])]
            highs[some] = lines[some]
            torch.sub(lines[some], left.copy_(highs[some]), out=left)
            lows[some] = left
        return cls(high, low)

    def t(self) -> "Halves":
        """Those of the transposed matrix, without a copy."""
        return Halves(self.high.t(), self.low.t())


Factor = Tensor | Halves
"""A matrix as it is, or split."""


def factor(matrix: Tensor, *, is_split: bool) -> Factor:
    """The matrix in the form in which it is multiplied."""
    return Halves.of(matrix) if is_split else matrix


def multiply(left: Factor, right: Factor) -> Tensor:
    """The product of two matrices that both are split or both are not."""
    if isinstance(left, Halves) and isinstance(right, Halves):
        return product(left, right)
    found: Tensor = left @ right  # type: ignore[operator]
    return found


def is_worth_splitting(weight: Tensor, *, num_rows: int = MIN_ROWS) -> bool:
    """True for weights in fp32 on the CPU, if there are enough of them and of rows at once."""
    is_fp32 = weight.dtype == torch.float32 and weight.device.type == "cpu"
    return is_fp32 and weight.numel() >= MIN_WEIGHTS and num_rows >= MIN_ROWS


def product(left: Halves, right: Halves) -> Float[Tensor, "N O"]:
    """The product in fp32 of two matrices whose rows or columns are contiguous.

    Raises:
        ValueError: The inner sizes differ, or the halves are not bf16 on the CPU.
    """
    if {part.dtype for part in (*left, *right)} != {
        torch.bfloat16
    } or left.high.device.type != "cpu":
        msg = f"halves must be bf16 on the CPU, got {left.high.dtype} on {left.high.device}"
        raise ValueError(msg)
    (rows, inner), (same, columns) = left.high.shape, right.high.shape
    if inner != same:
        msg = f"inner sizes must be equal, got {inner} and {same}"
        raise ValueError(msg)
    found = torch.empty(rows, columns, dtype=torch.float32, device="cpu")
    with record_function("astra::split_mm"):
        # The small products are added first, so that rounding affects the large one last.
        _add_product(left.low, right.high, found, keep=0.0)
        _add_product(left.high, right.low, found, keep=1.0)
        _add_product(left.high, right.high, found, keep=1.0)
    return found


@cache
def has_split_product() -> bool:
    """True if this processor has a matrix unit for bf16 and its numbers are correct."""
    if not has_amx() or _library_product() is None:
        return False
    numbers = torch.Generator().manual_seed(0)
    left, right = torch.randn(2, 192, 192, generator=numbers, dtype=torch.float32, device="cpu")
    exact = left.double() @ right.double()
    # Both memory orders of both sides.
    for one, other in ((left, right), (left.t().contiguous().t(), right.t().contiguous().t())):
        found = product(Halves.of(one), Halves.of(other))
        if not rounding_error(found, exact) < TOLERANCE:
            return False
    return True


def _add_product(left: Tensor, right: Tensor, into: Float[Tensor, "N O"], *, keep: float) -> None:
    call = _library_product()
    if call is None:
        msg = "MKL's product of bf16 must be there; ask has_split_product first"
        raise RuntimeError(msg)
    rows, inner = left.shape
    columns = right.shape[1]
    call(
        _ROW_MAJOR,
        *(_order(matrix) for matrix in (left, right)),
        *(rows, columns, inner, 1.0),
        *(left.data_ptr(), _stride(left), right.data_ptr(), _stride(right)),
        *(keep, into.data_ptr(), columns),
    )


def _order(matrix: Tensor) -> int:
    return _AS_IT_IS if matrix.stride(1) == 1 else _TRANSPOSED


def _stride(matrix: Tensor) -> int:
    # For a single row or column torch's stride is arbitrary, and MKL rejects a small one.
    if matrix.stride(1) == 1:
        return max(matrix.stride(0), matrix.shape[1])
    return max(matrix.stride(1), matrix.shape[0])


@cache
def _library_product() -> Any:
    """MKL's ``cblas_gemm_bf16bf16f32``; none where torch was built without it."""
    try:
        found = ctypes.CDLL(str(_LIBRARY)).cblas_gemm_bf16bf16f32
    except (AttributeError, OSError):
        return None
    size, number, place = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
    found.argtypes = [*([size] * 6), *(number, place, size, place, size), *(number, place, size)]
    found.restype = None
    return found
