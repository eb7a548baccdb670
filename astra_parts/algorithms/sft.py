"""Supervised fine-tuning on the better probes of preference pairs.

What preference methods are measured against (Rafailov et al., arXiv:2305.18290, section 6,
"Preferred-FT").
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from astra_core.algorithm import Algorithm, Need
from astra_core.algorithms.pairs import PairSelection, pair_figures, preference_pairs
from astra_core.rollout import Graph
from astra_parts.algorithms.imitation import (
    CopyAggregation,
    copied_batch,
    copied_steps,
    copying_loss,
)
from astra_parts.algorithms.policy_batch import PolicyBatch, PolicyStep


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
