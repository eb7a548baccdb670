"""Imitation: probes are copied as they are; supervised fine-tuning on the better ones of pairs.

What preference methods are measured against (Rafailov et al., arXiv:2305.18290, section 6,
"Preferred-FT").
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from astra_core.algorithm import Algorithm, Need
from astra_core.algorithms.movement import movement_figures
from astra_core.algorithms.pairs import PairSelection, pair_figures, preference_pairs
from astra_core.engine.logprobs import token_logprobs
from astra_core.rollout import Graph, Node, Path
from astra_core.system import System
from astra_parts.algorithms.functional import aggregate, aggregation_weights
from astra_parts.algorithms.policy import mean_of
from astra_parts.algorithms.policy_batch import PolicyBatch, PolicyStep, policy_batch

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
    batch = policy_batch(steps, system, aggregation=aggregation)
    shares = aggregation_weights(batch.mask, mode=aggregation).sum(-1)
    return replace(batch, weight=float((shares * batch.advantages[:, 0]).sum()))


def copying_loss(
    system: System, batch: PolicyBatch, *, aggregation: CopyAggregation
) -> tuple[Float[Tensor, ""], Mapping[str, float]]:
    """Negative log-likelihood of the probes, summed with their weights."""
    attacker = system.attacker
    logprobs = token_logprobs(attacker.model, batch.rows, plan=attacker.plan)
    total = aggregate(-logprobs * batch.advantages[:, :1], batch.mask, mode=aggregation)
    moved = movement_figures(logprobs, batch.behaviour_logprobs, batch.mask, weight=batch.weight)
    return total, {**moved, "copied_nll_nats": mean_of(-logprobs, batch)}


class SFT(Algorithm):
    """Likelihood of the chosen probes."""

    needs: ClassVar[frozenset[Need]] = frozenset({"siblings"})

    class Options(PairSelection):
        """Which probes are chosen."""

        aggregation: CopyAggregation = "token_mean"

    options: Options

    def flatten(self, graph: Graph) -> Sequence[PolicyStep]:
        """Every chosen probe once, weighted by how many siblings it beat and what it counts."""
        return copied_steps(
            (pair.chosen, pair.weight) for pair in preference_pairs(graph, self.options)
        )

    def remember(self, graphs: Sequence[Graph]) -> Mapping[str, float]:
        """Counts groups and pairs; stores nothing."""
        return pair_figures(graphs, self.options)

    def collate(self, steps: Sequence[PolicyStep]) -> PolicyBatch:
        """Probes as rows of one forward pass."""
        return copied_batch(steps, self.system, aggregation=self.options.aggregation)

    def step(self, batch: PolicyBatch) -> tuple[Float[Tensor, ""], Mapping[str, float]]:
        """The negative log-likelihood, summed over the probes."""
        return copying_loss(self.system, batch, aggregation=self.options.aggregation)
