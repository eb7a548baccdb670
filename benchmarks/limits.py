"""What this machine can do at best, measured, and what a step of decoding or an update must do.

No way of computing can read weights faster than memory gives them, or multiply faster than the best
matrix product does.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.shapes import Shape

FP32_BYTES = 4
EXACT = 1e-5
"""Largest error, relative to the largest entry, of a product that may still be called fp32."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The limits at the present number of threads, in fp32.

    Attributes:
        bytes_per_s: Of reading.
        flops_per_s: Of multiplying matrices.
    """

    bytes_per_s: float
    flops_per_s: float

    @classmethod
    def measured(cls, *, num_bytes: int = 1 << 30, size: int = 2048) -> "Machine":
        """The best of several tries."""
        block = torch.ones(num_bytes // FP32_BYTES)
        read = num_bytes / _best(block.sum)
        left, right = torch.rand(2, size, size, generator=torch.Generator().manual_seed(0))
        exact = left.double() @ right.double()
        work, found = 2.0 * size**3, 0.0
        for precision in ("highest", "medium"):
            with _matmul_precision(precision):
                product = left @ right
                if float((product - exact).abs().max() / exact.abs().max()) < EXACT:
                    found = max(found, work / _best(lambda: left @ right))
        return cls(read, found)

    def seconds(self, work: "Work") -> float:
        """The least time that this work can take."""
        return max(work.num_bytes / self.bytes_per_s, work.flops / self.flops_per_s)


@dataclass(frozen=True, slots=True)
class Work:
    """What has to be read and multiplied."""

    num_bytes: float
    flops: float


def decoding_work(model: Any, shape: Shape, *, batch_size: int, context_tokens: int) -> Work:
    """Of one new token for each of the rows: every weight, and all keys and values."""
    weights, head = _weights(model)
    cached = batch_size * context_tokens * 2 * shape.num_layers * shape.hidden_size
    flops = 2 * (weights + head) * batch_size + 2 * cached
    return Work(FP32_BYTES * (weights + head + cached), flops)


def update_work(model: Any, shape: Shape, rows: Iterable[Sequence[int]], num_scored: int) -> Work:
    """Of the forward and backward pass over these rows, of which no prefix is read twice.

    Args:
        model: Whose weights take the gradient.
        shape: Of the model.
        rows: Contexts with the probes that follow.
        num_scored: Tokens that need the head.
    """
    prefixes = {tuple(row[:end]) for row in rows for end in range(1, len(row) + 1)}
    weights, head = _weights(model)
    attended = sum(map(len, prefixes)) * 4 * shape.num_layers * shape.hidden_size
    forward = 2 * weights * len(prefixes) + 2 * head * num_scored + attended
    return Work(FP32_BYTES * (weights + head), 3 * forward)


def _weights(model: Any) -> tuple[int, int]:
    """Weights of the layers, and of the head, which the embeddings share."""
    head = model.lm_head.weight.numel()
    positions = model.transformer.wpe.weight.numel()
    return sum(p.numel() for p in model.parameters()) - positions - head, head


def _best(call: Callable[[], Any], repetitions: int = 7) -> float:
    seconds = []
    for _ in range(repetitions):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


@contextmanager
def _matmul_precision(name: str) -> Iterator[None]:
    """``medium`` lets oneDNN multiply, in fp32 all the same where the processor lacks AMX."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
