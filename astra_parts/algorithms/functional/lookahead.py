"""The gradient of a leader that foresees one step of its followers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]
Loss = Callable[[Mapping[str, Weights]], Tensor]
"""A piece of one agent's loss, from the weights of all agents by name; the pieces add up."""


def lookahead_gradient(
    losses: Mapping[str, Sequence[Loss]], weights: Mapping[str, Weights], *, leader: str, lr: float
) -> dict[str, Tensor]:
    """The gradient of L(x, y - lr dF/dy(x, y)) by the leader's weights x.

    L is the leader's loss; each follower answers x with a gradient step on its own loss F, which is
    differentiated too. It is computed as dL/dx(x, y') - lr (d2F/dxdy)^T dL/dy(x, y') with the moved
    y', piece by piece, so only one piece's graph is in memory and pieces do not affect the result.

    Args:
        losses: Of the leader and each follower, in pieces such as micro-batches.
        weights: Leaves that take a gradient; those of agents without a loss stay where they are.
        lr: The follower's step; 0 gives the leader's own gradient.

    Source: opponent shaping of Foerster et al., arXiv:1709.04326, with the step unrolled as in Metz
        et al., arXiv:1611.02163, instead of expanded to first order.
    """
    own = list(weights[leader].values())
    followers = [name for name in losses if name != leader]
    moved = dict(weights)
    for name in followers:
        steps = _sums([_gradient(loss(weights), weights[name]) for loss in losses[name]])
        moved[name] = {
            key: (weight.detach() - lr * step).requires_grad_()
            for (key, weight), step in zip(weights[name].items(), steps, strict=True)
        }
    felt = {name: list(moved[name].values()) for name in followers}
    every = [*own, *(weight for name in followers for weight in felt[name])]
    found = _sums([_gradient(loss(moved), dict(enumerate(every))) for loss in losses[leader]])
    total, rest = found[: len(own)], iter(found[len(own) :])
    for name in followers:
        pull = [next(rest) for _ in felt[name]]
        for loss in losses[name]:
            inner = torch.autograd.grad(
                loss(weights),
                list(weights[name].values()),
                create_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
            swayed = torch.stack([(a * b).sum() for a, b in zip(inner, pull, strict=True)]).sum()
            if swayed.requires_grad:
                mixed = _gradient(swayed, weights[leader])
                total = [own - lr * more for own, more in zip(total, mixed, strict=True)]
    return dict(zip(weights[leader], total, strict=True))


def _gradient(value: Tensor, weights: Mapping[Any, Tensor]) -> list[Tensor]:
    return list(
        torch.autograd.grad(
            value, list(weights.values()), allow_unused=True, materialize_grads=True
        )
    )


def _sums(parts: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    return [torch.stack(own).sum(dim=0) for own in zip(*parts, strict=True)]
