"""The measured limits of this machine, and the least work of a decoding step or an update.

No implementation can read weights faster than memory delivers them, or multiply faster than the
best matrix product.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from astra_core.engine.products.rounding import rounding_error
from astra_core.engine.products.split_product import Halves, has_split_product, product
from benchmarks.shapes import Shape

FP32_BYTES = 4
EXACT = 1e-5
"""Largest error, relative to the largest entry, of a product that may still be called fp32."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The limits at the present number of threads, in fp32.

    Attributes:
        bytes_per_s: Rate of reading memory.
        flops_per_s: Rate of torch's own products of fp32 matrices.
        split_flops_per_s: The same in three products of bf16; 0 if they are not used.
    """

    bytes_per_s: float
    flops_per_s: float
    split_flops_per_s: float = 0.0

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
                multiplied = left @ right
                if rounding_error(multiplied, exact) < EXACT:
                    found = max(found, work / _best(lambda: left @ right))
        split = 0.0
        if has_split_product():
            halves = Halves.of(left), Halves.of(right)
            split = work / _best(lambda: product(*halves))
        return cls(read, found, split)

    def with_split_products(self) -> "Machine":
        """The machine with all products computed in the faster of the two ways."""
        return replace(self, flops_per_s=max(self.flops_per_s, self.split_flops_per_s))

    def seconds(self, work: "Work") -> float:
        """The least time that this work can take."""
        return max(work.num_bytes / self.bytes_per_s, work.flops / self.flops_per_s)


@dataclass(frozen=True, slots=True)
class Work:
    """The bytes to read and the operations to compute."""

    num_bytes: float
    flops: float


def decoding_work(model: Any, shape: Shape, *, batch_size: int, context_tokens: float) -> Work:
    """The work of one new token for each row: every weight, and all keys and values."""
    weights, head = _weights(model)
    cached = batch_size * context_tokens * 2 * shape.num_layers * shape.hidden_size
    flops = 2 * (weights + head) * batch_size + 2 * cached
    return Work(FP32_BYTES * (weights + head + cached), flops)


def rollout_works(model: Any, shape: Shape, num_trees: int) -> Iterator[Work]:
    """The work of trees that grow together, by pass: nothing is read twice, contexts are shared.

    Args:
        model: Attacker and target alike.
        shape: Of models and trees.
        num_trees: Roots of the first level.
    """
    weights, head = _weights(model)
    new, num_prompts = shape.new_tokens, num_trees * shape.prompt_tokens
    num_read, num_probes, rows, shared = 2 * num_prompts, 0, num_trees, num_prompts
    for depth in range(shape.tree_depth):
        rows *= shape.tree_width
        # For the probe and the reply after it: on average half of the text being sampled is there.
        for own in (new / 2, new + new / 2):
            step = decoding_work(model, shape, batch_size=rows, context_tokens=shared / rows + own)
            yield Work(new * step.num_bytes, new * step.flops)
        # Every row continues from its own probe and reply, and cousins share older turns.
        shared += rows * 2 * new
        num_probes += rows * new
        # The target reads every probe; the attacker reads the replies that a probe follows.
        num_read += rows * new * (1 if depth + 1 == shape.tree_depth else 2)
    yield Work(FP32_BYTES * weights, 2 * weights * num_read + 2 * head * num_probes)


def update_work(model: Any, shape: Shape, rows: Iterable[Sequence[int]], num_scored: int) -> Work:
    """The work of a forward and backward pass over these rows, with no prefix read twice.

    Args:
        model: The model whose weights take the gradient.
        shape: The shape of the model.
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
