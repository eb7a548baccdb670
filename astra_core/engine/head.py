"""Log-probabilities of labels from hidden states, without a log-softmax that is kept.

The gradient of a label's log-probability is one minus the softmax at the label and minus the
softmax elsewhere, so the logits themselves become their gradient in place: there is one tensor as
wide as the vocabulary, where automatic differentiation would make five. The vocabulary is processed
in blocks, just wide enough for products to reach their full rate.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from astra_core.engine.bars import Barred, lower_barred
from astra_core.engine.compilation import has_compiler
from astra_core.engine.products.routes import Route, fast_route
from astra_core.engine.products.split_product import (
    Factor,
    Halves,
    factor,
    is_worth_splitting,
    multiply,
)

# Logits that are kept for the gradient: 512 MiB in fp32. Beyond it they are computed again.
_MAX_KEPT_LOGITS = 1 << 27
# The same of a GPU, as a share of its memory.
_KEPT_SHARE = 1 / 16
# Logits of a block: at least 2 MiB in fp32, about what a core's second cache holds, and at most 64.
_LOGITS_PER_BLOCK = 1 << 19
_MAX_LOGITS_PER_BLOCK = 1 << 24
# Logits of the rows that are processed at a time.
_LOGITS_PER_PASS = 1 << 21
_LOGITS_PER_GPU_PASS = 1 << 29
# A product that is narrower does not reach the processor's rate, least of all below the second.
_MIN_BLOCK = 4096
_NARROWEST = 512


def _max_kept_logits(device: torch.device) -> int:
    """The most logits that are kept for the gradient on a device."""
    if device.type != "cuda":
        return _MAX_KEPT_LOGITS
    total = torch.cuda.get_device_properties(device).total_memory
    return int(_KEPT_SHARE * total / 2)


def row_blocks(
    weight: Float[Tensor, "V H"], num_rows: int, *, is_kept: bool = False
) -> list[slice]:
    """Rows whose logits are computed at a time: all on a CPU, which divides the vocabulary.

    On a GPU all too, if the kernels read them and they are kept: nothing else is as large.
    """
    if not weight.is_cuda or (is_kept and _kernels() is not None):
        return [slice(0, num_rows)]
    return list(_slices(max(num_rows, 1), max(1, _LOGITS_PER_GPU_PASS // len(weight))))


def label_logprobs(
    head: torch.nn.Linear,
    states: Float[Tensor, "S H"],
    labels: Int[Tensor, " S"],
    *,
    route: Route,
    barred: Barred = None,
) -> Float[Tensor, " S"]:
    """Log-probability of each label after its state, nats, in fp32 at least.

    ``route``: of the plan, for products in fp32; ``barred``: of the model, see ``bars``.
    """
    states, products = prepare_states(head, states, labels, route=route, barred=barred)
    found = [
        _LabelLogprobs.apply(states[own], head.weight, head.bias, labels[own], products)  # type: ignore[no-untyped-call]
        for own in row_blocks(head.weight, len(labels), is_kept=products.is_kept)
    ]
    return found[0] if len(found) == 1 else torch.cat(found)


def prepare_states(
    head: torch.nn.Linear,
    states: Float[Tensor, "S H"],
    labels: Int[Tensor, " S"],
    *,
    route: Route,
    barred: Barred,
) -> tuple[Float[Tensor, "S H"], "Products"]:
    """The states in the type that is computed in, and how the products are taken.

    Raises:
        IndexError: A label is no token.
    """
    device = states.device.type
    if torch.is_autocast_enabled(device):
        states = states.to(torch.get_autocast_dtype(device))
    size = head.weight.shape[0]
    if labels.is_cuda:
        # Without waiting for what is computed before.
        torch._assert_async(((labels >= 0) & (labels < size)).all())  # noqa: SLF001
    elif len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < size:
        msg = f"labels must be tokens below {size}, got {int(labels.min())} to {int(labels.max())}"
        raise IndexError(msg)
    # Without a gradient nothing is kept and no product is split.
    is_trained = torch.is_grad_enabled() and (states.requires_grad or head.weight.requires_grad)
    is_fp32 = states.dtype == torch.float32 and device == "cpu"
    is_large = is_fp32 and is_worth_splitting(head.weight, num_rows=len(states))
    return states, Products(
        is_kept=is_trained and len(labels) * size <= _max_kept_logits(states.device),
        is_split=route == "split" and is_trained and is_large,
        is_fast=route == "fast" and is_fp32,
        barred=None if barred is None else barred.to(states.device),
    )


@dataclass(frozen=True, slots=True)
class Products:
    """How one call computes its products, and whether it keeps them for the gradient."""

    is_kept: bool
    is_split: bool
    is_fast: bool
    barred: Barred

    def factor(self, matrix: Tensor, dtype: torch.dtype) -> Factor:
        """One side of a product, in ``dtype``."""
        return factor(matrix.to(dtype), is_split=self.is_split)

    def route(self) -> AbstractContextManager[None]:
        """In which the products are taken."""
        return fast_route() if self.is_fast else nullcontext()

    def logits(
        self, known: Factor, rows: Factor, *, bias: Float[Tensor, " V"] | None, block: slice
    ) -> Float[Tensor, "S B"]:
        """Logits of a block of the vocabulary, whose rows are given."""
        kind = "cpu" if isinstance(known, Halves) else known.device.type
        with self.route(), torch.autocast(kind, enabled=False):
            logits = multiply(known, rows.t())
        logits = logits if bias is None else logits.add_(bias[block].to(logits.dtype))
        if self.barred is None:
            return logits
        is_here = (self.barred >= block.start) & (self.barred < block.stop)
        return lower_barred(logits, self.barred[is_here] - block.start)


class _LabelLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917  # torch gives them by position
        ctx: Any,
        states: Float[Tensor, "S H"],
        weight: Float[Tensor, "V H"],
        bias: Float[Tensor, " V"] | None,
        labels: Int[Tensor, " S"],
        products: Products,
    ) -> Float[Tensor, " S"]:
        dtype = torch.promote_types(states.dtype, torch.float32)
        chosen = states.new_zeros(len(labels), dtype=dtype)
        totals = torch.full_like(chosen, -torch.inf)
        known, kept = products.factor(states, states.dtype), []
        for block in vocabulary_blocks(weight, len(labels)):
            rows = products.factor(weight[block], states.dtype)
            logits = products.logits(known, rows, bias=bias, block=block)
            totals = torch.logaddexp(totals, _logsumexp(logits, dtype))
            is_here, places = within(labels, block)
            chosen = torch.where(is_here, logits.gather(1, places)[:, 0].to(dtype), chosen)
            kept += [logits] if products.is_kept else []
        ctx.save_for_backward(states, weight, bias, labels, totals)
        ctx.products, ctx.kept = products, kept
        return chosen - totals

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return blockwise_gradients(ctx, partial(_gradient, outer=gradients[0]))


def blockwise_gradients(
    ctx: Any, gradient: Callable[..., Float[Tensor, "S B"]]
) -> tuple[Tensor | None, ...]:
    """The gradients of states, weight and bias, one block of the vocabulary at a time.

    Args:
        ctx: Of the pass forward, with its products, what it kept, and behind states, weight, bias
            and labels the statistics of each state.
        gradient: Gives that of a block's logits from these, where labels lie in it, and statistics.
    """
    states, weight, bias, labels, *statistics = ctx.saved_tensors
    of_states = torch.zeros_like(states, dtype=statistics[0].dtype)
    of_weight = torch.empty_like(weight) if ctx.needs_input_grad[1] else None
    of_bias = None if bias is None else torch.empty_like(bias)
    products: Products = ctx.products
    known, kept = products.factor(states, states.dtype), iter(ctx.kept)
    ctx.kept = []
    for block in vocabulary_blocks(weight, len(labels)):
        rows = products.factor(weight[block], states.dtype)
        logits = next(kept, None)
        if logits is None:
            logits = products.logits(known, rows, bias=bias, block=block)
        logits = gradient(logits, within(labels, block), statistics)
        sent = factor(logits, is_split=products.is_split)
        with products.route():
            of_states += multiply(sent, rows)
            if of_weight is not None:
                of_weight[block] = multiply(sent.t(), known)
        if of_bias is not None:
            of_bias[block] = logits.sum(dim=0)
    return of_states.to(states.dtype), of_weight, of_bias, None, None


def _logsumexp(logits: Float[Tensor, "S B"], dtype: torch.dtype) -> Float[Tensor, " S"]:
    """As torch's, in ``dtype``; half-precision logits are not copied before."""
    kernels = _kernels() if logits.is_cuda and dtype == torch.float32 else None
    if kernels is not None:
        found: Tensor = kernels.row_logsumexp(logits)
        return found
    if logits.dtype == dtype:
        return logits.logsumexp(dim=1)
    top = logits.amax(dim=1).to(dtype)
    return (logits - top[:, None]).exp_().sum(dim=1).log() + top


def _gradient(
    logits: Float[Tensor, "S B"],
    labels: tuple[Tensor, Tensor],
    statistics: Sequence[Float[Tensor, " S"]],
    *,
    outer: Float[Tensor, " S"],
) -> Float[Tensor, "S B"]:
    """The gradient of the labels' log-probabilities at the logits, which may be overwritten."""
    (is_here, places), (totals,) = labels, statistics
    kernels = _kernels() if logits.is_cuda and totals.dtype == torch.float32 else None
    if kernels is not None:
        # A GPU takes the whole vocabulary at a time, so every label is here.
        found: Tensor = kernels.overwrite_with_gradient(logits, totals, places[:, 0], outer=outer)
        return found
    is_wide = logits.dtype == totals.dtype
    own = logits.sub_(totals[:, None]) if is_wide else logits - totals[:, None]
    own.exp_().mul_(-outer[:, None])
    own.scatter_add_(1, places, (outer * is_here)[:, None])
    return own.to(logits.dtype)


@cache
def _kernels() -> Any:
    """``head_kernels``, if they can be compiled."""
    if not has_compiler():
        return None
    from astra_core.engine import head_kernels

    return head_kernels


def within(labels: Int[Tensor, " S"], block: slice) -> tuple[Tensor, Tensor]:
    """Which labels lie in a block of the vocabulary, and their column there; 0 for the others."""
    is_here = (labels >= block.start) & (labels < block.stop)
    return is_here, ((labels - block.start) * is_here)[:, None]


def vocabulary_blocks(weight: Float[Tensor, "V H"], num_rows: int) -> Iterator[slice]:
    """Rows of the vocabulary that are multiplied at a time; a GPU takes all, for fewer states."""
    if weight.is_cuda:
        return _slices(len(weight), len(weight))
    rows = max(num_rows, 1)
    widest = max(_NARROWEST, _MAX_LOGITS_PER_BLOCK // rows)
    return _slices(len(weight), min(widest, max(_MIN_BLOCK, _LOGITS_PER_BLOCK // rows)))


def blocks_of(logits: Float[Tensor, "S V"]) -> Iterator[slice]:
    """Rows that are processed at a time, so that they stay in the processor's cache.

    A GPU gets many more: each kernel takes microseconds to begin.
    """
    count = _LOGITS_PER_GPU_PASS if logits.is_cuda else _LOGITS_PER_PASS
    return _slices(len(logits), max(1, count // logits.shape[1]))


def _slices(length: int, size: int) -> Iterator[slice]:
    for begin in range(0, length, size):
        yield slice(begin, min(begin + size, length))
