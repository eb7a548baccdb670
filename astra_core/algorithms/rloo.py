"""RLOO: a probe is judged against the mean of its siblings, and weighted as a whole.

Ahmadian et al., arXiv:2402.14740, after Kool, van Hoof and Welling (2019). The importance ratio is
that of the whole probe, as in TRL: ``-min(R A, clip(R) A)`` with ``R = exp(sum log p - sum log
p_old)``.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from astra_core.algorithm import Algorithm, Need
from astra_core.algorithms.credit import (
    credited_turns,
    flat_group_figures,
    values_and_groups,
)
from astra_core.algorithms.functional import (
    Aggregation,
    clipped_surrogate,
    is_clipped,
    leave_one_out,
    masked_whiten,
)
from astra_core.algorithms.kl_penalty import KLPenalty, needs_for_kl
from astra_core.algorithms.policy import (
    PolicyBatch,
    PolicyOptions,
    PolicyStep,
    collated,
    log_ratios,
    mean_of,
    policy_loss,
    policy_steps,
)
from astra_core.config import Positive, Section
from astra_core.engine.logprobs import token_logprobs
from astra_core.rollout import Graph
from astra_core.system import System


class RLOO(Algorithm):
    """Leave-one-out advantage among siblings, clipped ratio of the whole probe."""

    needs: ClassVar[frozenset[Need]] = frozenset({"siblings"})

    class Options(PolicyOptions):
        """How far a probe may move, and the price on KL, which RLOO takes off the reward."""

        clip_low: float = Field(default=0.2, gt=0.0, lt=1.0)
        clip_high: Positive = 0.2
        whiten_advantages: bool = Field(
            default=False, description="Mean 0 and spread 1 over the experience."
        )
        aggregation: Aggregation = "sequence_mean"
        kl: Literal["none", "reward", "loss"] = "reward"
        kl_estimator: Literal["k1", "k2", "k3"] = "k1"

    options: Options

    def __init__(self, options: Options, *, system: System) -> None:
        super().__init__(options, system=system)
        self._penalty = KLPenalty(options)

    @classmethod
    def needs_with(cls, options: Section) -> frozenset[Need]:
        """The reference too, where KL to it is charged."""
        return cls.needs | needs_for_kl(options)

    def flatten(self, graph: Graph) -> Sequence[PolicyStep]:
        """Every turn, compared with its siblings."""
        return self.flatten_all([graph])

    def flatten_all(self, graphs: Sequence[Graph]) -> list[PolicyStep]:
        """Every turn, compared with its siblings; whitening needs the whole experience."""
        turns = credited_turns(graphs, self.options, reward=self._penalty.reward)
        advantages = leave_one_out(*values_and_groups(turns))
        if self.options.whiten_advantages:
            everywhere = torch.ones_like(advantages, dtype=torch.bool)
            advantages = masked_whiten(advantages, everywhere)
        return policy_steps(turns, advantages)

    def remember(self, graphs: Sequence[Graph]) -> Mapping[str, float]:
        """Counts the groups that taught nothing and updates the KL coefficient."""
        turns = credited_turns(graphs, self.options, reward=self._penalty.reward)
        return {**flat_group_figures(turns), **self._penalty.remember(graphs)}

    def collate(self, steps: Sequence[PolicyStep]) -> PolicyBatch:
        """Probes as rows of one forward pass."""
        return collated(steps, self.system, aggregation=self.options.aggregation)

    def step(self, batch: PolicyBatch) -> tuple[Float[Tensor, ""], Mapping[str, float]]:
        """The clipped surrogate, summed over the probes."""
        options = self.options
        clips = {"clip_low": options.clip_low, "clip_high": options.clip_high}
        attacker = self.system.attacker
        logprobs = token_logprobs(attacker.model, batch.rows, plan=attacker.plan)
        ratios = log_ratios(logprobs, batch, level="sequence")
        losses = clipped_surrogate(ratios, batch.advantages, **clips)
        clipped = is_clipped(ratios, batch.advantages, **clips).expand_as(batch.mask)
        loss, metrics = policy_loss(
            logprobs, losses, batch, aggregation=options.aggregation, penalty=self._penalty
        )
        return loss, {**metrics, "clipped": mean_of(clipped, batch)}

    def state(self) -> Mapping[str, Tensor]:
        """The KL coefficient."""
        return self._penalty.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Puts it back."""
        self._penalty.load_state(state)
