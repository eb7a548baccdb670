"""Identity preference optimisation: the log-ratio gap of a pair is pulled to a fixed size.

Azar et al., arXiv:2310.12036, eq. 17. Where DPO pushes an already settled pair ever further
apart, the squared loss stops at ``1 / (2 beta)``. The paper's log-ratios are sums over tokens,
and so are ours unless ``length_normalised`` is set.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from astra_core.algorithm import Algorithm, Need
from astra_core.algorithms.functional.preference import ipo_losses
from astra_core.algorithms.pairs import (
    PairLearning,
    PairOptions,
    PreferenceBatch,
    PreferencePair,
)
from astra_core.config import Positive
from astra_core.rollout import Graph
from astra_core.system import System


class IPO(Algorithm):
    """Squared loss over the log-ratio gap of pairs of siblings."""

    needs: ClassVar[frozenset[Need]] = frozenset({"siblings", "reference"})

    class Options(PairOptions):
        """Which pairs, and how far apart they are pulled."""

        beta: Positive = Field(default=0.1, description="The gap aimed at is 1 / (2 beta) nats.")

    options: Options

    def __init__(self, options: Options, *, system: System) -> None:
        super().__init__(options, system=system)
        self._pairs = PairLearning(system, options, partial(ipo_losses, beta=options.beta))

    def flatten(self, graph: Graph) -> Sequence[PreferencePair]:
        """Pairs of siblings, breadth first."""
        return self._pairs.flatten(graph)

    def remember(self, graphs: Sequence[Graph]) -> Mapping[str, float]:
        """Counts groups and pairs; stores nothing."""
        return self._pairs.remember(graphs)

    def collate(self, steps: Sequence[PreferencePair]) -> PreferenceBatch:
        """Chosen and rejected probes as rows of one forward pass."""
        return self._pairs.collate(steps)

    def step(self, batch: PreferenceBatch) -> tuple[Float[Tensor, ""], Mapping[str, float]]:
        """The squared loss, summed over the pairs."""
        return self._pairs.step(batch)
