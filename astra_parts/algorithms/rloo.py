"""RLOO: a probe is compared with the mean of its siblings, and weighted as a whole.

Ahmadian et al., arXiv:2402.14740, after Kool, van Hoof and Welling (2019). The importance ratio is
that of the whole probe, as in TRL: ``-min(R A, clip(R) A)`` with ``R = exp(sum log p - sum log
p_old)``.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field

from astra_core.algorithm import Need
from astra_core.algorithms.credit import values_and_groups
from astra_core.algorithms.functional import masked_whiten
from astra_core.rollout import Graph
from astra_core.system import System
from astra_parts.algorithms.functional import Aggregation, leave_one_out
from astra_parts.algorithms.policy import PolicyAlgorithm, PolicyGradient, PolicyOptions
from astra_parts.algorithms.policy_batch import PolicyStep, policy_steps
from astra_parts.algorithms.surrogates import ClipOptions, surrogate_with_clips


class RLOO(PolicyAlgorithm):
    """Leave-one-out advantage among siblings, clipped ratio of the whole probe."""

    needs: ClassVar[frozenset[Need]] = frozenset({"siblings"})
    weighs_probes = True

    class Options(PolicyOptions, ClipOptions):
        """How far a probe may move, and the KL penalty, which RLOO subtracts from the reward."""

        whiten_advantages: bool = Field(
            False, description="Mean 0 and spread 1 over the experience."
        )
        aggregation: Aggregation = "sequence_mean"
        kl: Literal["none", "reward", "loss"] = "reward"
        kl_estimator: Literal["k1", "k2", "k3"] = "k1"

    options: Options

    def __init__(self, options: Options, *, system: System) -> None:
        super().__init__(options, system=system)
        surrogate = surrogate_with_clips(options, level="sequence")
        self._policy = PolicyGradient.of(options, system=system, surrogate=surrogate)

    def flatten(self, graph: Graph) -> Sequence[PolicyStep]:
        """Every turn, compared with its siblings."""
        return self.flatten_all([graph])

    def flatten_all(self, graphs: Sequence[Graph]) -> list[PolicyStep]:
        """Every turn, compared with its siblings; whitening needs the whole experience."""
        turns = self._policy.turns(graphs, self.options)
        advantages = leave_one_out(*values_and_groups(turns))
        if self.options.whiten_advantages:
            everywhere = torch.ones_like(advantages, dtype=torch.bool)
            advantages = masked_whiten(advantages, everywhere)
        return policy_steps(turns, advantages)

    def remember(self, graphs: Sequence[Graph]) -> Mapping[str, float]:
        """Counts the groups without gradient and updates the KL coefficient."""
        return self._policy.remember(graphs, self._policy.turns(graphs, self.options))
