"""Direct preference optimisation: siblings are compared, and the better probe is made likelier.

Rafailov et al., arXiv:2305.18290. The default of this project, because a tree of turns yields pairs
without a value network, and a margin filters out the scorer's noise.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from astra_core.algorithm import Algorithm, Need
from astra_core.algorithms.pair_losses import PairLossOptions, pair_losses
from astra_core.algorithms.pairs import (
    PreferenceBatch,
    PreferencePair,
    pair_figures,
    preference_batch,
    preference_loss,
    preference_pairs,
)
from astra_core.rollout import Graph
from astra_core.system import System


class DPO(Algorithm):
    """One loss over pairs of siblings, the sigmoid by default, or a weighted sum of several."""

    needs: ClassVar[frozenset[Need]] = frozenset({"siblings", "reference"})
    # The pairs of first turns are noisier and count more: twice the pull keeps them fluent. Where
    # few probes succeed, siblings that differ by novelty alone would be most of the pairs. Every
    # two siblings are compared: one pair each is a quarter of the updates that others make.
    options_for_turns: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"backup": "mean", "turn_weights": "visits", "beta": 0.2, "margin": 0.3, "pairs": "all"}
    )

    class Options(PairLossOptions):
        """Which pairs, and which loss over them."""

    options: Options

    def __init__(self, options: Options, *, system: System) -> None:
        super().__init__(options, system=system)
        self._losses = pair_losses(options)

    def flatten(self, graph: Graph) -> Sequence[PreferencePair]:
        """Pairs of siblings, breadth first."""
        return preference_pairs(graph, self.options)

    def remember(self, graphs: Sequence[Graph]) -> Mapping[str, float]:
        """Counts groups and pairs; stores nothing."""
        return pair_figures(graphs, self.options)

    def collate(self, steps: Sequence[PreferencePair]) -> PreferenceBatch:
        """Chosen and rejected probes as rows of one forward pass."""
        return preference_batch(steps, self.system)

    def step(self, batch: PreferenceBatch) -> tuple[Float[Tensor, ""], Mapping[str, float]]:
        """The chosen loss, summed over the pairs."""
        options = self.options
        return preference_loss(
            self.system,
            batch,
            self._losses,
            beta=options.beta,
            length_normalised=options.length_normalised,
            copy_weight=options.terms.get("sft", 0.0),
            is_weighted=options.on_policy_weights,
        )
