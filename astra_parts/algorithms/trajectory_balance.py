"""Trajectory balance: the gap of log-ratios of two siblings is pulled to their gap in reward.

The attacker is drawn to the reference times ``exp(return / temperature)``, which samples every
probe in proportion to what it is worth instead of keeping the best one: GFlowNets, Malkin et al.,
arXiv:2201.13259, of attackers arXiv:2405.18540. Between two siblings the partition function
cancels, so none is learned: the contrastive form of arXiv:2605.00553, and REBEL, arXiv:2404.16767.
Siblings that are worth the same are pulled together, and a small gap counts little: what separates
them may be the draw of the replies. So a margin is not needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from astra_core.algorithm import Algorithm, Need
from astra_core.algorithms.credit import Backup
from astra_core.algorithms.pairs import (
    PairSelection,
    PreferenceBatch,
    PreferencePair,
    pair_figures,
    preference_batch,
    preference_loss,
    preference_pairs,
)
from astra_core.config import NonNegative, Positive
from astra_core.rollout import Graph
from astra_parts.algorithms.functional.margin_losses import balance_losses


@dataclass(frozen=True, slots=True)
class BalanceBatch:
    """Pairs as rows, and by how much the first of each is worth more."""

    pairs: PreferenceBatch
    gaps: Float[Tensor, " N"]

    @property
    def weight(self) -> float:
        """The number of pairs."""
        return self.pairs.weight

    @property
    def num_tokens(self) -> int:
        """Tokens the attacker reads in this pass."""
        return self.pairs.num_tokens


class TrajectoryBalance(Algorithm):
    """Squared distance of log-ratio gaps from reward gaps, over all pairs of siblings."""

    needs: ClassVar[frozenset[Need]] = frozenset({"siblings", "reference"})

    class Options(PairSelection):
        """Which pairs, and how far apart a gap in reward pulls them."""

        pairs: Literal["best_worst", "all"] = Field("all", description="Of each group of siblings.")
        margin: NonNegative = Field(
            0.0, description="A gap in reward up to it is no pair; ties never are one."
        )
        backup: Backup = "mean"
        temperature: Positive = Field(
            0.1, description="Reward units per nat of the log-ratio gap that is aimed at."
        )

    options: Options

    def flatten(self, graph: Graph) -> Sequence[PreferencePair]:
        """Pairs of siblings, breadth first."""
        return preference_pairs(graph, self.options)

    def remember(self, graphs: Sequence[Graph]) -> Mapping[str, float]:
        """Counts groups and pairs; stores nothing."""
        return pair_figures(graphs, self.options)

    def collate(self, steps: Sequence[PreferencePair]) -> BalanceBatch:
        """Chosen and rejected probes as rows of one forward pass."""
        batch = preference_batch(steps, self.system)
        gaps = torch.tensor([pair.gap for pair in steps], device=batch.mask.device)
        return BalanceBatch(batch, gaps.float())

    def step(self, batch: BalanceBatch) -> tuple[Float[Tensor, ""], Mapping[str, float]]:
        """The squared loss, summed over the pairs."""
        options = self.options
        return preference_loss(
            self.system,
            batch.pairs,
            partial(balance_losses, gaps=batch.gaps, temperature=options.temperature),
            beta=options.temperature,
            length_normalised=False,
        )
