"""Entropy and collision probability of next-token distributions, computed in blocks.

As in ``head``, one block of the vocabulary is processed at a time and no log-softmax is kept. The
gradient of an entropy ``H`` at a logit is ``-p (log p + H)``, so the backward pass needs the
block's logits and nothing else as wide as the vocabulary.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from astra_core.engine.bars import Barred
from astra_core.engine.head import (
    Products,
    blockwise_gradients,
    prepare_states,
    row_blocks,
    vocabulary_blocks,
    within,
)
from astra_core.engine.products.routes import Route


def label_logprobs_and_entropies(
    head: torch.nn.Linear,
    states: Float[Tensor, "S H"],
    labels: Int[Tensor, " S"],
    *,
    route: Route,
    barred: Barred = None,
) -> tuple[Float[Tensor, " S"], Float[Tensor, " S"]]:
    """What ``label_logprobs`` gives, and the entropy of each state's distribution.

    Both carry a gradient and come from the same products.

    Returns:
        Nats, in fp32 at least; entropies are 0 to ``log V``.
    """
    states, products = prepare_states(head, states, labels, route=route, barred=barred)
    found = [
        _LabelsAndEntropies.apply(states[own], head.weight, head.bias, labels[own], products)  # type: ignore[no-untyped-call]
        for own in row_blocks(head.weight, len(labels))
    ]
    logprobs, entropies = zip(*found, strict=True)
    return torch.cat(logprobs), torch.cat(entropies)


@torch.no_grad()
def collision_logprobs(
    head: torch.nn.Linear, states: Float[Tensor, "S H"], *, route: Route, barred: Barred = None
) -> Float[Tensor, " S"]:
    """Log of the sum of squared probabilities of each state's distribution, without gradient.

    Returns:
        Nats, ``-log V`` to 0: minus the Renyi entropy of order 2.
    """
    labels = torch.zeros(0, dtype=torch.long)
    states, products = prepare_states(head, states, labels, route=route, barred=barred)
    found = [
        _collisions(head, states[own], products) for own in row_blocks(head.weight, len(states))
    ]
    return torch.cat(found)


def _collisions(
    head: torch.nn.Linear, states: Float[Tensor, "S H"], products: Products
) -> Float[Tensor, " S"]:
    totals = states.new_full((len(states),), -torch.inf, dtype=_wide(states.dtype))
    squares = totals.clone()
    known = products.factor(states, states.dtype)
    for block in vocabulary_blocks(head.weight, len(states)):
        rows = products.factor(head.weight[block], states.dtype)
        own = products.logits(known, rows, bias=head.bias, block=block).to(totals.dtype)
        totals = torch.logaddexp(totals, own.logsumexp(dim=1))
        squares = torch.logaddexp(squares, own.mul_(2.0).logsumexp(dim=1))
    return squares - 2.0 * totals


class _LabelsAndEntropies(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917  # torch gives them by position
        ctx: Any,
        states: Float[Tensor, "S H"],
        weight: Float[Tensor, "V H"],
        bias: Float[Tensor, " V"] | None,
        labels: Int[Tensor, " S"],
        products: Products,
    ) -> tuple[Float[Tensor, " S"], Float[Tensor, " S"]]:
        chosen = states.new_zeros(len(labels), dtype=_wide(states.dtype))
        totals, means = torch.full_like(chosen, -torch.inf), torch.zeros_like(chosen)
        known, kept = products.factor(states, states.dtype), []
        for block in vocabulary_blocks(weight, len(labels)):
            rows = products.factor(weight[block], states.dtype)
            logits = products.logits(known, rows, bias=bias, block=block)
            own = logits.to(chosen.dtype)
            before, totals = totals, torch.logaddexp(totals, own.logsumexp(dim=1))
            means = _with_block(means, own, before=before, totals=totals)
            is_here, places = within(labels, block)
            chosen = torch.where(is_here, own.gather(1, places)[:, 0], chosen)
            kept += [logits] if products.is_kept else []
        ctx.save_for_backward(states, weight, bias, labels, totals, means)
        ctx.products, ctx.kept = products, kept
        return chosen - totals, -means

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return blockwise_gradients(ctx, partial(_gradient, outer=gradients))


def _with_block(
    means: Float[Tensor, " S"],
    logits: Float[Tensor, "S B"],
    *,
    before: Float[Tensor, " S"],
    totals: Float[Tensor, " S"],
) -> Float[Tensor, " S"]:
    """The mean of ``log p`` over the vocabulary so far, with one more block of it.

    Relative to the running total, so that large logits do not cancel. Barred tokens are held at
    the lowest finite number: their probability is 0 as well, and ``0 * -inf`` would be nan.
    """
    least = torch.finfo(means.dtype).min
    before, totals = before.clamp(min=least), totals.clamp(min=least)
    own = (logits - totals[:, None]).clamp(min=least)
    moved = (before - totals).clamp(min=least)
    return moved.exp() * (means + moved) + (own.exp() * own).sum(dim=1)


def _gradient(
    logits: Float[Tensor, "S B"],
    labels: tuple[Tensor, Tensor],
    statistics: Sequence[Float[Tensor, " S"]],
    *,
    outer: tuple[Tensor, ...],
) -> Float[Tensor, "S B"]:
    """The gradient at the logits of log-probabilities and entropies together."""
    (totals, means), (of_labels, of_entropies) = statistics, outer
    is_here, places = labels
    own = (logits.to(totals.dtype) - totals[:, None]).clamp(min=torch.finfo(totals.dtype).min)
    probabilities = own.exp()
    # d H / d z = -p (log p + H), and H = -means.
    own.sub_(means[:, None]).mul_(of_entropies[:, None]).add_(of_labels[:, None])
    found = probabilities.mul_(own).neg_()
    found.scatter_add_(1, places, (of_labels * is_here)[:, None])
    return found.to(logits.dtype)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
