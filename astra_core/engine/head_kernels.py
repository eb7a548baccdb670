"""Triton kernels for rows of logits on a GPU, each of which reads a row once.

torch takes a dozen passes over a tensor as wide as the vocabulary, most of them in fp32. A row's
result depends on the row alone. triton comes with torch for CUDA and with no other, so ``head``
imports this module only there.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

# Logits that a program holds at a time.
_BLOCK = 4096


@triton.jit
def _sum_rows(logits, totals, width: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, block)
    top = tl.full((block,), float("-inf"), tl.float32)
    total = tl.zeros((block,), tl.float32)
    for start in range(0, width, block):
        at = start + lanes
        own = tl.load(logits + row * width + at, mask=at < width, other=float("-inf"))
        own = own.to(tl.float32)
        new = tl.maximum(top, own)
        # A lane that has read nothing yet: minus infinity less itself would be NaN.
        base = tl.where(new == float("-inf"), 0.0, new)
        total = total * tl.exp(top - base) + tl.exp(own - base)
        top = new
    peak = tl.max(top, 0)
    tl.store(totals + row, tl.log(tl.sum(total * tl.exp(top - peak), 0)) + peak)


@triton.jit
def _differentiate(logits, totals, labels, outer, width: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * block + tl.arange(0, block)
    places = logits + row * width + at
    own = tl.load(places, mask=at < width, other=float("-inf")).to(tl.float32)
    slope = tl.load(outer + row)
    found = -slope * tl.exp(own - tl.load(totals + row))
    found += tl.where(at == tl.load(labels + row), slope, 0.0)
    tl.store(places, found.to(logits.dtype.element_ty), mask=at < width)


def row_logsumexp(logits: Float[Tensor, "S V"]) -> Float[Tensor, " S"]:
    """The log of the sum of exponentials of each row, in fp32."""
    totals = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
    _sum_rows[len(logits),](logits, totals, logits.shape[1], block=_BLOCK, num_warps=8)
    return totals


def overwrite_with_gradient(
    logits: Float[Tensor, "S V"],
    totals: Float[Tensor, " S"],
    labels: Int[Tensor, " S"],
    *,
    outer: Float[Tensor, " S"],
) -> Float[Tensor, "S V"]:
    """The gradient of the labels' log-probabilities, times ``outer``, in the logits' memory."""
    rows, width = logits.shape
    grid = rows, triton.cdiv(width, _BLOCK)
    _differentiate[grid](
        logits, totals, labels, outer.contiguous(), width, block=_BLOCK, num_warps=8
    )
    return logits
