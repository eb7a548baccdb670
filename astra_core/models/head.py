"""Log-probabilities of labels from hidden states, without a log-softmax that is kept.

The gradient of a label's log-probability is one minus the softmax at the label and minus the
softmax elsewhere, so the logits themselves become their gradient in place: of vocabulary-wide
tensors there is one, where automatic differentiation would make five. The vocabulary is gone
through in blocks, so that what a product makes is still in the processor's cache when it is used.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from astra_core.models.routed_linear import fast_route, is_exact
from astra_core.models.split_product import (
    MIN_ROWS,
    Factor,
    Halves,
    factor,
    has_split_product,
    is_worth_splitting,
    multiply,
)

# Logits that are kept for the gradient; 256 MiB in fp32. More are computed once more for it.
MAX_KEPT_LOGITS = 1 << 26
# Logits of a block: 2 MiB in fp32, about what a core's second cache holds.
_LOGITS_PER_BLOCK = 1 << 19
# A product that is narrower does not reach the processor's rate.
_MIN_BLOCK = 512


def label_logprobs(
    head: torch.nn.Linear,
    states: Float[Tensor, "S H"],
    labels: Int[Tensor, " S"],
    *,
    max_kept_logits: int = MAX_KEPT_LOGITS,
) -> Float[Tensor, " S"]:
    """Log-probability of each label after its state, nats, in fp32 at least."""
    device = states.device.type
    if torch.is_autocast_enabled(device):
        states = states.to(torch.get_autocast_dtype(device))
    is_kept = len(labels) * head.weight.shape[0] <= max_kept_logits
    found: Tensor = _LabelLogprobs.apply(states, head.weight, head.bias, labels, is_kept)  # type: ignore[no-untyped-call]
    return found


class _LabelLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Float[Tensor, "S H"],
        weight: Float[Tensor, "V H"],
        bias: Float[Tensor, " V"] | None,
        labels: Int[Tensor, " S"],
        is_kept: bool,
    ) -> Float[Tensor, " S"]:
        dtype = torch.promote_types(states.dtype, torch.float32)
        chosen = states.new_zeros(len(labels), dtype=dtype)
        totals = torch.full_like(chosen, -torch.inf)
        kept = []
        known = _known(states, weight)
        for block in _vocabulary_blocks(weight, len(labels)):
            logits = _logits(known, weight, bias, block)
            own = logits.to(dtype)
            totals = torch.logaddexp(totals, own.logsumexp(dim=1))
            is_here, places = _within(labels, block)
            chosen += own.gather(1, places)[:, 0] * is_here
            kept += [logits] if is_kept else []
        ctx.save_for_backward(states, weight, bias, labels, totals)
        ctx.kept = kept
        return chosen - totals

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, bias, labels, totals = ctx.saved_tensors
        (outer,) = gradients
        of_states = torch.zeros_like(states, dtype=totals.dtype)
        of_weight = torch.empty_like(weight) if ctx.needs_input_grad[1] else None
        of_bias = None if bias is None else torch.empty_like(bias)
        kept, ctx.kept = iter(ctx.kept), []
        known = _known(states, weight)
        for block in _vocabulary_blocks(weight, len(labels)):
            logits = next(kept, None)
            if logits is None:
                logits = _logits(known, weight, bias, block)
            logits = _gradient(logits, _within(labels, block), totals, outer)
            sent = factor(logits, is_split=isinstance(known, Halves))
            with _route(states):
                of_states += multiply(sent, _rows_of(weight, block, known))
                if of_weight is not None:
                    of_weight[block] = multiply(sent.t(), known)
            if of_bias is not None:
                of_bias[block] = logits.sum(dim=0)
        return of_states.to(states.dtype), of_weight, of_bias, None, None


def _known(states: Float[Tensor, "S H"], weight: Float[Tensor, "V H"]) -> Factor:
    """The states in the form that products of this size are taken in."""
    is_large = len(states) >= MIN_ROWS and is_worth_splitting(weight)
    is_split = is_large and states.dtype == torch.float32 and has_split_product()
    return factor(states, is_split=is_split and not is_exact())


def _rows_of(weight: Float[Tensor, "V H"], block: slice, known: Factor) -> Factor:
    """A block of the weights, in the form and type of the states."""
    if isinstance(known, Halves):
        return Halves.of(weight[block])
    return weight[block].to(known.dtype)


def _logits(
    known: Factor, weight: Float[Tensor, "V H"], bias: Float[Tensor, " V"] | None, block: slice
) -> Float[Tensor, "S B"]:
    rows = _rows_of(weight, block, known)
    with _route(weight), torch.autocast(weight.device.type, enabled=False):
        logits = multiply(known, rows.t())
    return logits if bias is None else logits.add_(bias[block].to(logits.dtype))


def _gradient(
    logits: Float[Tensor, "S B"],
    labels: tuple[Tensor, Tensor],
    totals: Float[Tensor, " S"],
    outer: Float[Tensor, " S"],
) -> Float[Tensor, "S B"]:
    """What the labels' log-probabilities send to the logits, which are overwritten by it."""
    is_here, places = labels
    own = logits.to(totals.dtype)
    own.sub_(totals[:, None]).exp_().mul_(-outer[:, None])
    own.scatter_add_(1, places, (outer * is_here)[:, None])
    return own.to(logits.dtype)


def _within(labels: Int[Tensor, " S"], block: slice) -> tuple[Tensor, Tensor]:
    """Which labels lie in a block of the vocabulary, and their column there; 0 for the others."""
    is_here = (labels >= block.start) & (labels < block.stop)
    return is_here, ((labels - block.start) * is_here)[:, None]


def _vocabulary_blocks(weight: Float[Tensor, "V H"], num_rows: int) -> Iterator[slice]:
    return _slices(len(weight), max(_MIN_BLOCK, _LOGITS_PER_BLOCK // max(num_rows, 1)))


def blocks_of(logits: Float[Tensor, "S V"]) -> Iterator[slice]:
    """Rows that are passed over at a time, so that they stay in the processor's cache."""
    return _slices(len(logits), max(1, _LOGITS_PER_BLOCK // logits.shape[1]))


def _slices(length: int, size: int) -> Iterator[slice]:
    for begin in range(0, length, size):
        yield slice(begin, min(begin + size, length))


def _route(states: Tensor) -> AbstractContextManager[None]:
    is_fp32 = states.dtype == torch.float32 and states.device.type == "cpu"
    return fast_route() if is_fp32 else nullcontext()
