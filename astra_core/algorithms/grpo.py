"""GRPO: siblings are standardised against each other, and a clipped ratio bounds each update.

DeepSeekMath, arXiv:2402.03300. Its descendants are options: ``scale: none`` with
``aggregation: constant_length`` is Dr. GRPO (arXiv:2503.20783); ``token_mean``, ``clip_high: 0.28``
and ``drop_flat_groups`` are DAPO (arXiv:2503.14476); ``ratio: sequence`` with ``sequence_mean`` is
GSPO (arXiv:2507.18071), whose clips are of the order 3e-4.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Self

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from astra_core.algorithm import Algorithm, Need
from astra_core.algorithms.credit import CreditedTurn, values_and_groups
from astra_core.algorithms.functional import (
    MIN_SPREAD,
    AdvantageScale,
    group_advantages,
    group_advantages_over_runs,
)
from astra_core.algorithms.kl_penalty import needs_for_kl
from astra_core.algorithms.policy import (
    PolicyBatch,
    PolicyGradient,
    PolicyOptions,
    PolicyStep,
    RatioLevel,
    policy_steps,
)
from astra_core.algorithms.surrogates import SurrogateOptions, surrogate_of
from astra_core.config import Positive, Section
from astra_core.rollout import Graph
from astra_core.system import System


class GRPO(Algorithm):
    """Advantages standardised within each group of siblings, and the clipped surrogate."""

    needs: ClassVar[frozenset[Need]] = frozenset({"siblings"})

    class Options(PolicyOptions, SurrogateOptions):
        """How groups are compared, and how far a token may move."""

        compare: Literal["siblings", "conversations"] = Field(
            default="siblings",
            description="A probe with those after the same context, or with all of its prompt: "
            "what grew from one first probe is then a run, and runs weigh alike (NexRL).",
        )
        scale: AdvantageScale = Field(
            default="group",
            description="Centred returns are divided by the spread of their group, by that of the "
            "whole experience, or by nothing, so that groups keep their own scale.",
        )
        min_spread: Positive = Field(
            default=MIN_SPREAD, description="A group whose returns spread no more teaches nothing."
        )
        drop_flat_groups: bool = Field(
            default=False,
            description="Such groups are left out, also from what the loss is divided by.",
        )
        ratio: Literal["token", "sequence"] = Field(
            default="token", description="Of each token, or the geometric mean over the probe."
        )

        @model_validator(mode="after")
        def _conversations_are_scaled(self) -> Self:
            if self.compare == "conversations" and self.scale != "group":
                msg = "scale must be 'group' when compare is 'conversations'"
                raise ValueError(msg)
            return self

        @model_validator(mode="after")
        def _a_sequence_is_clipped(self) -> Self:
            if self.ratio == "sequence" and self.surrogate != "clip":
                msg = f"ratio must be 'token' when surrogate is '{self.surrogate}'"
                raise ValueError(msg)
            return self

    options: Options

    def __init__(self, options: Options, *, system: System) -> None:
        super().__init__(options, system=system)
        level: RatioLevel = "token" if options.ratio == "token" else "sequence_mean"
        surrogate = surrogate_of(options, level=level)
        self._policy = PolicyGradient.of(options, system=system, surrogate=surrogate)

    @classmethod
    def needs_with(cls, options: Section) -> frozenset[Need]:
        """The reference too, if there is a KL penalty."""
        return cls.needs | needs_for_kl(options)

    def flatten(self, graph: Graph) -> Sequence[PolicyStep]:
        """Every turn, compared with its siblings."""
        return self._steps([graph])

    def flatten_all(self, graphs: Sequence[Graph]) -> list[PolicyStep]:
        """Every turn, compared with its siblings; ``batch`` scales by the whole experience."""
        is_whole = self.options.scale == "batch"
        return self._steps(graphs) if is_whole else super().flatten_all(graphs)

    def _steps(self, graphs: Sequence[Graph]) -> list[PolicyStep]:
        turns = self._policy.turns(graphs, self.options)
        steps = policy_steps(turns, self._advantages(turns))
        if not self.options.drop_flat_groups:
            return steps
        pairs = list(zip(turns, steps, strict=True))
        lively = {turn.group for turn, step in pairs if step.advantage != 0.0}
        return [step for turn, step in pairs if turn.group in lively]

    def remember(self, graphs: Sequence[Graph]) -> Mapping[str, float]:
        """Counts the groups without gradient and updates the KL coefficient."""
        turns = self._policy.turns(graphs, self.options)
        return self._policy.remember(graphs, turns, min_spread=self.options.min_spread)

    def collate(self, steps: Sequence[PolicyStep]) -> PolicyBatch:
        """Probes as rows of one forward pass."""
        return self._policy.collate(steps)

    def step(self, batch: PolicyBatch) -> tuple[Float[Tensor, ""], Mapping[str, float]]:
        """The clipped surrogate, summed over the tokens."""
        return self._policy.step(batch)

    def state(self) -> Mapping[str, Tensor]:
        """The KL coefficient."""
        return self._policy.penalty.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores it."""
        self._policy.penalty.load_state(state)

    def _advantages(self, turns: Sequence[CreditedTurn]) -> Float[Tensor, " N"]:
        options = self.options
        values, groups = values_and_groups(turns)
        if options.compare == "conversations":
            runs = torch.tensor([turn.node.path[0] for turn in turns], dtype=torch.long)
            return group_advantages_over_runs(
                values, torch.zeros_like(groups), runs, min_spread=options.min_spread
            )
        return group_advantages(
            values,
            groups,
            scale=options.scale,
            min_spread=options.min_spread,
        )
