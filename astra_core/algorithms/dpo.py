"""Direct preference optimisation: siblings are compared, and the better probe is made likelier.

Rafailov et al., arXiv:2305.18290. The default of this project, because a tree of turns yields pairs
without a value network, and a margin keeps the scorer's noise out of them.
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
    PairOptions,
    PreferenceBatch,
    PreferencePair,
    pair_figures,
    preference_batch,
    preference_loss,
    preference_pairs,
)
from astra_core.config import Positive
from astra_core.rollout import Graph


class DPO(Algorithm):
    """Sigmoid, conservative, robust or hinge loss over pairs of siblings."""

    needs: ClassVar[frozenset[Need]] = frozenset({"siblings", "reference"})

    class Options(PairOptions):
        """Which pairs, and which loss over them."""

        beta: Positive = Field(default=0.1, description="Strength of the pull to the reference.")
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

    def flatten(self, graph: Graph) -> Sequence[PreferencePair]:
        """Pairs of siblings, breadth first."""
        return preference_pairs(graph, self.options)

    def remember(self, graphs: Sequence[Graph]) -> Mapping[str, float]:
        """Counts groups and pairs; nothing is kept."""
        return pair_figures(graphs, self.options)

    def collate(self, steps: Sequence[PreferencePair]) -> PreferenceBatch:
        """Chosen and rejected probes as rows of one forward pass."""
        return preference_batch(steps, self.system)

    def step(self, batch: PreferenceBatch) -> tuple[Float[Tensor, ""], Mapping[str, float]]:
        """The chosen loss, summed over the pairs."""
        options = self.options
        losses = {
            "sigmoid": partial(preference.dpo_losses, beta=options.beta),
            "conservative": partial(
                preference.cdpo_losses, beta=options.beta, label_smoothing=options.label_smoothing
            ),
            "robust": partial(
                preference.robust_dpo_losses,
                beta=options.beta,
                label_smoothing=options.label_smoothing,
            ),
            "hinge": partial(preference.hinge_losses, beta=options.beta),
        }[options.loss]
        return preference_loss(
            self.system,
            batch,
            losses,
            beta=options.beta,
            length_normalised=options.length_normalised,
        )
