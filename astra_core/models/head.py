"""Log-probabilities of labels from hidden states, without a log-softmax that is kept.

The gradient of a label's log-probability is one minus the softmax at the label and minus the
softmax elsewhere, so the logits themselves become their gradient in place: of vocabulary-wide
tensors there is one, where automatic differentiation would make five.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from astra_core.models.routed_linear import fast_route

# Logits that are held at a time; 256 MiB in fp32. More are computed once more for the gradient.
LOGITS_PER_CHUNK = 1 << 26
_LOGITS_PER_BLOCK = 1 << 21


def label_logprobs(
    head: torch.nn.Linear,
    states: Float[Tensor, "S H"],
    labels: Int[Tensor, " S"],
    *,
    logits_per_chunk: int = LOGITS_PER_CHUNK,
) -> Float[Tensor, " S"]:
    """Log-probability of each label after its state, nats, in fp32 at least."""
    device = states.device.type
    if torch.is_autocast_enabled(device):
        states = states.to(torch.get_autocast_dtype(device))
    rows = max(1, logits_per_chunk // head.weight.shape[0])
    found: Tensor = _LabelLogprobs.apply(states, head.weight, head.bias, labels, rows)  # type: ignore[no-untyped-call]
    return found


class _LabelLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Float[Tensor, "S H"],
        weight: Float[Tensor, "V H"],
        bias: Float[Tensor, " V"] | None,
        labels: Int[Tensor, " S"],
        rows: int,
    ) -> Float[Tensor, " S"]:
        dtype = torch.promote_types(states.dtype, torch.float32)
        chosen, totals = (states.new_empty(len(labels), dtype=dtype) for _ in range(2))
        logits = None
        for chunk in _slices(len(labels), rows):
            logits = _logits(states[chunk], weight, bias)
            for block in blocks_of(logits):
                own = logits[block].to(dtype)
                place = slice(chunk.start + block.start, chunk.start + block.stop)
                totals[place] = own.logsumexp(dim=1)
                chosen[place] = own.gather(1, labels[place, None])[:, 0]
        ctx.save_for_backward(states, weight, bias, labels, totals)
        ctx.rows = rows
        # Of several chunks none is kept, so that memory does not grow with their number.
        ctx.logits = logits if len(labels) <= rows else None
        return chosen - totals

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, bias, labels, totals = ctx.saved_tensors
        (outer,) = gradients
        of_states = torch.empty_like(states)
        of_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        of_bias = None if bias is None else torch.zeros_like(bias)
        for chunk in _slices(len(labels), ctx.rows):
            logits, ctx.logits = ctx.logits, None
            if logits is None:
                logits = _logits(states[chunk], weight, bias)
            _become_gradient(logits, labels[chunk], totals[chunk], outer[chunk])
            with _route(states):
                of_states[chunk] = logits @ weight.to(logits.dtype)
                if of_weight is not None:
                    of_weight += (logits.t() @ states[chunk]).to(of_weight.dtype)
            if of_bias is not None:
                of_bias += logits.sum(dim=0)
        return of_states, of_weight, of_bias, None, None


def _logits(
    states: Float[Tensor, "S H"], weight: Float[Tensor, "V H"], bias: Float[Tensor, " V"] | None
) -> Float[Tensor, "S V"]:
    dtype = states.dtype
    with _route(states), torch.autocast(states.device.type, enabled=False):
        return torch.nn.functional.linear(
            states, weight.to(dtype), None if bias is None else bias.to(dtype)
        )


def _become_gradient(
    logits: Float[Tensor, "S V"],
    labels: Int[Tensor, " S"],
    totals: Float[Tensor, " S"],
    outer: Float[Tensor, " S"],
) -> None:
    """Overwrites logits by the gradient that the labels' log-probabilities send to them."""
    for block in blocks_of(logits):
        own = logits[block].to(totals.dtype)
        own.sub_(totals[block, None]).exp_().mul_(-outer[block, None])
        own.scatter_add_(1, labels[block, None], outer[block, None])
        logits[block] = own


def blocks_of(logits: Float[Tensor, "S V"]) -> Iterator[slice]:
    """Rows that are passed over at a time, so that they stay in the processor's cache."""
    return _slices(len(logits), max(1, _LOGITS_PER_BLOCK // logits.shape[1]))


def _slices(length: int, size: int) -> Iterator[slice]:
    for begin in range(0, length, size):
        yield slice(begin, min(begin + size, length))


def _route(states: Tensor) -> AbstractContextManager[None]:
    is_fp32 = states.dtype == torch.float32 and states.device.type == "cpu"
    return fast_route() if is_fp32 else nullcontext()
