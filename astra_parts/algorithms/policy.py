"""The skeleton of every policy gradient: credit, advantages, rows of probes, surrogate, KL, loss.

An algorithm says what its advantages and its surrogate are; ``PolicyGradient`` does the rest.
Advantages, log-ratios and surrogates are the pure functions of ``functional``; the sum over tokens
and what it is divided by are ``functional.aggregate``'s, so micro-batches add up.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from astra_core.algorithm import Algorithm, Need
from astra_core.algorithms.credit import (
    CreditedTurn,
    CreditOptions,
    credited_turns,
    flat_group_figures,
)
from astra_core.algorithms.functional import (
    MIN_SPREAD,
    importance_ratios,
    kl_estimates,
    masked_mean,
    sequence_log_ratios,
)
from astra_core.algorithms.movement import movement_figures
from astra_core.config import NonNegative, Section
from astra_core.engine.logprobs import token_logprobs, token_logprobs_and_entropies
from astra_core.rollout import Graph
from astra_core.system import System
from astra_parts.algorithms.functional import Aggregation, aggregate
from astra_parts.algorithms.functional.aggregation import require_column_or_same
from astra_parts.algorithms.kl_penalty import KLOptions, KLPenalty, needs_for_kl
from astra_parts.algorithms.policy_batch import (
    AdvantageStep,
    PolicyBatch as PolicyBatch,
    PolicyStep as PolicyStep,
    policy_batch,
)

RatioLevel = Literal["token", "sequence", "sequence_mean"]
"""Of which an importance ratio is taken: a token, a whole probe, or its geometric mean."""


class PolicyOptions(CreditOptions, KLOptions):
    """Credit over turns, KL, and how tokens are counted."""

    aggregation: Aggregation = Field(
        "token_mean",
        description="All tokens alike, the mean or the sum within each probe and then over probes, "
        "or the sum divided by the longest a probe may be.",
    )
    entropy_coefficient: NonNegative = Field(
        0.0, description="Reward units per nat of a token's entropy."
    )


Surrogate = Callable[
    [Float[Tensor, "B T"], PolicyBatch], tuple[Float[Tensor, "B #T"], Mapping[str, float]]
]
"""From log-probabilities under the attacker to losses per token or per probe, and figures."""


@dataclass(frozen=True, slots=True)
class PolicyGradient:
    """What all policy gradients have in common, around the surrogate in which they differ.

    ``entropy_coefficient``: of the bonus for an attacker that stays undecided; 0 computes none.
    """

    system: System
    surrogate: Surrogate
    aggregation: Aggregation
    penalty: KLPenalty
    entropy_coefficient: float = 0.0

    @classmethod
    def of(
        cls, options: PolicyOptions, *, system: System, surrogate: Surrogate
    ) -> "PolicyGradient":
        """The skeleton as the options have it."""
        return cls(
            system,
            surrogate,
            options.aggregation,
            KLPenalty(options),
            entropy_coefficient=options.entropy_coefficient,
        )

    def turns(self, graphs: Sequence[Graph], credit: CreditOptions) -> list[CreditedTurn]:
        """Every turn that can be learned from, with the KL penalty if it is in the reward."""
        return credited_turns(graphs, credit, reward=self.penalty.reward)

    def remember(
        self,
        graphs: Sequence[Graph],
        turns: Sequence[CreditedTurn],
        *,
        min_spread: float = MIN_SPREAD,
    ) -> dict[str, float]:
        """Counts the groups of these turns without gradient and moves the KL coefficient."""
        figures = flat_group_figures(turns, min_spread=min_spread)
        return {**figures, **self.penalty.remember(graphs)}

    def collate(self, steps: Sequence[AdvantageStep]) -> PolicyBatch:
        """Probes as rows of one forward pass."""
        return policy_batch(steps, self.system, aggregation=self.aggregation)

    def step(self, batch: PolicyBatch) -> tuple[Float[Tensor, ""], Mapping[str, float]]:
        """The surrogate, the KL penalty and the entropy bonus, summed over the batch."""
        model, plan = self.system.attacker.model, self.system.attacker.plan
        if self.entropy_coefficient == 0.0:
            return self.loss(token_logprobs(model, batch.rows, plan=plan), batch)
        logprobs, entropies = token_logprobs_and_entropies(model, batch.rows, plan=plan)
        loss, figures = self.loss(logprobs, batch)
        bonus = aggregate(entropies, batch.mask, mode=self.aggregation)
        figures["entropy_nats"] = mean_of(entropies, batch)
        return loss - self.entropy_coefficient * bonus, figures

    def loss(
        self, logprobs: Float[Tensor, "B T"], batch: PolicyBatch
    ) -> tuple[Float[Tensor, ""], dict[str, float]]:
        """The summed loss from known log-probabilities, and how far the attacker has moved."""
        losses, figures = self.surrogate(logprobs, batch)
        total = aggregate(losses, batch.mask, mode=self.aggregation)
        pull = self.penalty.losses(logprobs, batch.reference_logprobs, batch.behaviour_logprobs)
        if pull is not None:
            total = total + aggregate(pull, batch.mask, mode=self.aggregation)
        now, before = logprobs.detach(), batch.behaviour_logprobs
        return total, {
            **movement_figures(now, before, batch.mask, weight=batch.weight),
            "policy_kl_nats": mean_of(kl_estimates(before, now, estimator="k3"), batch),
            "ratio": mean_of(importance_ratios(now - before), batch),
            "advantage": mean_of(batch.advantages, batch),
            **figures,
        }


class PolicyAlgorithm(Algorithm):
    """An algorithm whose batches, loss and state are those of the skeleton that it makes."""

    _policy: PolicyGradient

    @classmethod
    def needs_with(cls, options: Section) -> frozenset[Need]:
        """The reference too, if there is a KL penalty."""
        return cls.needs | needs_for_kl(options)

    def collate(self, steps: Sequence[AdvantageStep]) -> PolicyBatch:
        """Probes as rows of one forward pass."""
        return self._policy.collate(steps)

    def step(self, batch: PolicyBatch) -> tuple[Float[Tensor, ""], Mapping[str, float]]:
        """The surrogate's loss, summed over tokens or probes as the options say."""
        return self._policy.step(batch)

    def state(self) -> Mapping[str, Tensor]:
        """The KL coefficient, if it can move."""
        return self._policy.penalty.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores it."""
        self._policy.penalty.load_state(state)


def log_ratios(
    logprobs: Float[Tensor, "B T"], batch: PolicyBatch, *, level: RatioLevel
) -> Float[Tensor, "B #T"]:
    """Attacker over sampling policy, nats: per token, or summed or averaged over each probe."""
    if level == "token":
        return logprobs - batch.behaviour_logprobs
    ratios = sequence_log_ratios(
        logprobs, batch.behaviour_logprobs, batch.mask, length_normalised=level == "sequence_mean"
    )
    return ratios[:, None]


def mean_of(values: Float[Tensor, "B #T"], batch: PolicyBatch) -> float:
    """Mean over the trained tokens of a batch; 0 if it has none."""
    require_column_or_same(mask=batch.mask, values=values)
    return float(masked_mean(values.detach().float().expand_as(batch.mask), batch.mask))
