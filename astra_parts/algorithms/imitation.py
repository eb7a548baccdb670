"""Imitation: weighted probes, and their likelihood."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from astra_core.algorithms.movement import movement_figures
from astra_core.engine.logprobs import token_logprobs
from astra_core.rollout import Node, Path
from astra_core.system import System
from astra_parts.algorithms.functional import aggregate, aggregation_weights, nll_losses
from astra_parts.algorithms.policy import mean_of
from astra_parts.algorithms.policy_batch import PolicyBatch, PolicyStep, collated

CopyAggregation = Literal["token_mean", "sequence_mean"]


def copied_steps(copies: Iterable[tuple[Node, float]]) -> list[PolicyStep]:
    """Every probe of one graph once, in the order met, with the sum of its weights."""
    nodes: dict[Path, Node] = {}
    weights: dict[Path, float] = {}
    for node, weight in copies:
        nodes[node.path] = node
        weights[node.path] = weights.get(node.path, 0.0) + weight
    return [PolicyStep(node, weights[path]) for path, node in nodes.items()]


def copied_batch(
    steps: Sequence[PolicyStep], system: System, *, aggregation: CopyAggregation
) -> PolicyBatch:
    """Probes as rows; one with weight two counts twice, also in the divisor of the loss."""
    batch = collated(steps, system, aggregation=aggregation)
    shares = aggregation_weights(batch.mask, mode=aggregation).sum(-1)
    return replace(batch, weight=float((shares * batch.advantages[:, 0]).sum()))


def copying_loss(
    system: System, batch: PolicyBatch, *, aggregation: CopyAggregation
) -> tuple[Float[Tensor, ""], Mapping[str, float]]:
    """Negative log-likelihood of the probes, summed with their weights."""
    attacker = system.attacker
    logprobs = token_logprobs(attacker.model, batch.rows, plan=attacker.plan)
    losses = nll_losses(logprobs, weights=batch.advantages[:, 0])
    total = aggregate(losses, batch.mask, mode=aggregation).total
    moved = movement_figures(logprobs, batch.behaviour_logprobs, batch.mask, weight=batch.weight)
    return total, {**moved, "copied_nll_nats": mean_of(-logprobs, batch)}
