"""REINFORCE: every probe becomes likelier in proportion to its return minus a baseline.

Williams, Machine Learning 8 (1992), 229-256. The return of a probe is the reward-to-go over turns.
The simplest policy gradient; it needs no siblings.
"""

from collections.abc import Mapping, Sequence, Set as AbstractSet
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from astra_core.algorithm import ALL_GIVEN, Need, refuse_single_children
from astra_core.algorithms.credit import CreditedTurn, values_and_groups
from astra_core.config import Positive, Section
from astra_core.rollout import Graph
from astra_core.system import System
from astra_parts.algorithms.functional import (
    Aggregation,
    importance_sampling_surrogate,
    leave_one_out,
    mean_baseline_advantages,
    reinforce_surrogate,
    running_mean,
    truncated_surrogate,
)
from astra_parts.algorithms.kl_penalty import needs_for_kl
from astra_parts.algorithms.policy import PolicyAlgorithm, PolicyGradient, PolicyOptions, log_ratios
from astra_parts.algorithms.policy_batch import PolicyBatch, PolicyStep, policy_steps


class REINFORCE(PolicyAlgorithm):
    """Reward-to-go minus a baseline, times the log-probability of the probe."""

    needs: ClassVar[frozenset[Need]] = frozenset()
    weighs_probes = True

    class Options(PolicyOptions):
        """Which baseline, and how rollouts of an older policy are corrected for."""

        baseline: Literal["none", "mean", "running", "leave_one_out"] = Field(
            "mean",
            description="Subtracted from a return: the mean of this experience, of all before it, "
            "or of the probe's siblings.",
        )
        importance: Literal["none", "full", "truncated"] = Field(
            "truncated",
            description="Ratio to the policy that sampled, which is 1 in the first update of an "
            "experience: ignored, in full, or capped.",
        )
        max_ratio: Positive = Field(5.0, description="The cap; CISPO, arXiv:2506.13585.")
        aggregation: Aggregation = "sequence_sum"

    options: Options

    def __init__(self, options: Options, *, system: System) -> None:
        super().__init__(options, system=system)
        self._policy = PolicyGradient.of(options, system=system, surrogate=self._surrogate)
        self._mean, self._num_seen = 0.0, 0

    @classmethod
    def needs_with(cls, options: Section) -> frozenset[Need]:
        """The reference if there is a KL penalty, and siblings if they are the baseline."""
        compares = getattr(options, "baseline", None) == "leave_one_out"
        return needs_for_kl(options) | ({"siblings"} if compares else set())

    @classmethod
    def check_needs(
        cls, options: Section, sampler_options: Section, *, gives: AbstractSet[Need] = ALL_GIVEN
    ) -> None:
        """Says that it is the baseline that needs siblings."""
        if "siblings" in cls.needs_with(options):
            refuse_single_children("REINFORCE with baseline 'leave_one_out'", sampler_options)
        super().check_needs(options, sampler_options, gives=gives)

    def flatten(self, graph: Graph) -> Sequence[PolicyStep]:
        """Every turn; with baseline ``mean`` the graph stands for the whole experience."""
        return self.flatten_all([graph])

    def flatten_all(self, graphs: Sequence[Graph]) -> list[PolicyStep]:
        """Every turn, its return compared with the baseline."""
        turns = self._turns(graphs)
        values, groups = values_and_groups(turns)
        baseline = self.options.baseline
        if baseline == "mean":
            return policy_steps(turns, mean_baseline_advantages(values))
        if baseline == "leave_one_out":
            return policy_steps(turns, leave_one_out(values, groups))
        return policy_steps(turns, values - (self._mean if baseline == "running" else 0.0))

    def remember(self, graphs: Sequence[Graph]) -> Mapping[str, float]:
        """Updates the running mean and the KL coefficient; counts siblings if they are compared."""
        turns = self._turns(graphs)
        values, _ = values_and_groups(turns)
        self._mean, self._num_seen = running_mean(values, mean=self._mean, num_seen=self._num_seen)
        # The other baselines compare no siblings: a group of one has its gradient there.
        if self.options.baseline == "leave_one_out":
            figures: Mapping[str, float] = self._policy.remember(graphs, turns)
        else:
            figures = self._policy.penalty.remember(graphs)
        return {**figures, "running_mean": self._mean}

    def state(self) -> Mapping[str, Tensor]:
        """The running mean and the KL coefficient."""
        return {
            "running_mean": torch.tensor(self._mean, dtype=torch.float64),
            "num_seen": torch.tensor(self._num_seen),
            **super().state(),
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores both."""
        self._mean, self._num_seen = float(state["running_mean"]), int(state["num_seen"])
        super().load_state(state)

    def _turns(self, graphs: Sequence[Graph]) -> list[CreditedTurn]:
        return self._policy.turns(graphs, self.options)

    def _surrogate(
        self, logprobs: Float[Tensor, "B T"], batch: PolicyBatch
    ) -> tuple[Float[Tensor, "B T"], Mapping[str, float]]:
        """Minus advantage times log-probability, corrected for the policy that sampled."""
        options, ratios = self.options, log_ratios(logprobs, batch, level="token")
        if options.importance == "none":
            return reinforce_surrogate(logprobs, batch.advantages), {}
        if options.importance == "full":
            return importance_sampling_surrogate(ratios, batch.advantages), {}
        cap = options.max_ratio
        return truncated_surrogate(logprobs, ratios, batch.advantages, max_ratio=cap), {}
