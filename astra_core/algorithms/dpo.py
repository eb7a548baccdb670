"""Direct preference optimisation: siblings are compared, and the better probe is made likelier.

Rafailov et al., arXiv:2305.18290. The default of this project, because a tree of turns yields pairs
without a value network, and a margin filters out the scorer's noise.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar, Literal, Self

from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from astra_core.algorithm import Algorithm, Need
from astra_core.algorithms.functional import preference
from astra_core.algorithms.pairs import (
    PairLearning,
    PairLosses,
    PairOptions,
    PreferenceBatch,
    PreferencePair,
)
from astra_core.rollout import Graph
from astra_core.system import System


class DPO(Algorithm):
    """Sigmoid, conservative, robust or hinge loss over pairs of siblings."""

    needs: ClassVar[frozenset[Need]] = frozenset({"siblings", "reference"})

    class Options(PairOptions):
        """Which pairs, and which loss over them."""

        loss: Literal["sigmoid", "conservative", "robust", "hinge"] = "sigmoid"
        label_smoothing: float = Field(
            default=0.0,
            ge=0.0,
            lt=0.5,
            description="Share of pairs believed to be the wrong way round.",
        )

        @model_validator(mode="after")
        def _smoothing_has_an_effect(self) -> Self:
            if self.label_smoothing and self.loss not in {"conservative", "robust"}:
                msg = "label_smoothing must be 0 unless loss is conservative or robust"
                raise ValueError(msg)
            return self

    options: Options

    def __init__(self, options: Options, *, system: System) -> None:
        super().__init__(options, system=system)
        self._pairs = PairLearning(system, options, _losses(options))

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
        """The chosen loss, summed over the pairs."""
        return self._pairs.step(batch)


def _losses(options: DPO.Options) -> PairLosses:
    beta, smoothing = options.beta, options.label_smoothing
    table: dict[str, PairLosses] = {
        "sigmoid": partial(preference.dpo_losses, beta=beta),
        "conservative": partial(preference.cdpo_losses, beta=beta, label_smoothing=smoothing),
        "robust": partial(preference.robust_dpo_losses, beta=beta, label_smoothing=smoothing),
        "hinge": partial(preference.hinge_losses, beta=beta),
    }
    return table[options.loss]
