"""The skeleton of every policy gradient: credit, advantages, rows of probes, surrogate, KL, loss.

An algorithm says what its advantages and its surrogate are; ``PolicyGradient`` does the rest.
Advantages, log-ratios and surrogates are the pure functions of ``functional``; the sum over tokens
and what it is divided by are ``functional.aggregate``'s, so micro-batches add up.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from astra_core.algorithms.credit import (
    CreditedTurn,
    CreditOptions,
    credited_turns,
    flat_group_figures,
)
from astra_core.algorithms.functional import (
    MIN_SPREAD,
    Aggregation,
    aggregate,
    aggregation_weight,
    importance_ratios,
    kl_estimates,
    sequence_log_ratios,
)
from astra_core.algorithms.kl_penalty import KLOptions, KLPenalty
from astra_core.algorithms.movement import movement_figures
from astra_core.config import NonNegative
from astra_core.engine.logprobs import token_logprobs, token_logprobs_and_entropies
from astra_core.models.rows import TokenRows, pad_rows
from astra_core.rollout import Graph, Node
from astra_core.system import System

RatioLevel = Literal["token", "sequence", "sequence_mean"]
"""Of which an importance ratio is taken: a token, a whole probe, or its geometric mean."""


class PolicyOptions(CreditOptions, KLOptions):
    """Credit over turns, KL, and how tokens are counted."""

    aggregation: Aggregation = Field(
        default="token_mean",
        description="All tokens alike, the mean or the sum within each probe and then over probes, "
        "or the sum divided by the longest a probe may be.",
    )
    entropy_coefficient: NonNegative = Field(
        default=0.0, description="Reward units per nat of a token's entropy."
    )


class AdvantageStep(Protocol):
    """A probe with one advantage for the whole of it, or one per token."""

    @property
    def node(self) -> Node:
        """The turn that holds the probe."""

    @property
    def advantages(self) -> tuple[float, ...]:
        """One number, or one per token."""


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """A probe, and what the log-probability of every token of it is weighted by."""

    node: Node
    advantage: float

    @property
    def advantages(self) -> tuple[float, ...]:
        """The one for all tokens."""
        return (self.advantage,)


@dataclass(frozen=True, slots=True)
class PolicyBatch:
    """Probes as rows of one forward pass.

    Attributes:
        rows: Contexts and probes.
        behaviour_logprobs: Of every probe token under the policy that sampled, nats.
        reference_logprobs: The same under the reference; 0 where the sampler computed none.
        mask: True at the tokens that are trained.
        advantages: One column for the whole probe, or one per token.
        weight: Tokens or probes, as the aggregation counts them.
        num_tokens: Real tokens in ``rows``.
    """

    rows: TokenRows
    behaviour_logprobs: Float[Tensor, "B T"]
    reference_logprobs: Float[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    advantages: Float[Tensor, "B #T"]
    weight: float
    num_tokens: int


Surrogate = Callable[
    [Float[Tensor, "B T"], PolicyBatch], tuple[Float[Tensor, "B #T"], Mapping[str, float]]
]
"""From log-probabilities under the attacker to losses per token or per probe, and figures."""


@dataclass(frozen=True, slots=True)
class PolicyGradient:
    """What all policy gradients have in common, around the surrogate that tells them apart.

    Attributes:
        system: Whose attacker learns.
        surrogate: From log-probabilities and a batch to losses.
        aggregation: How tokens are counted.
        penalty: On the KL to the reference.
        entropy_coefficient: Of the bonus for an attacker that stays undecided; 0 computes none.
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
        return collated(steps, self.system, aggregation=self.aggregation)

    def step(self, batch: PolicyBatch) -> tuple[Float[Tensor, ""], Mapping[str, float]]:
        """The surrogate, the KL penalty and the entropy bonus, summed over the batch."""
        model, plan = self.system.attacker.model, self.system.attacker.plan
        if self.entropy_coefficient == 0.0:
            return self.loss(token_logprobs(model, batch.rows, plan=plan), batch)
        logprobs, entropies = token_logprobs_and_entropies(model, batch.rows, plan=plan)
        loss, figures = self.loss(logprobs, batch)
        bonus = aggregate(entropies, batch.mask, mode=self.aggregation, max_length=1).total
        figures["entropy_nats"] = mean_of(entropies, batch)
        return loss - self.entropy_coefficient * bonus, figures

    def loss(
        self, logprobs: Float[Tensor, "B T"], batch: PolicyBatch
    ) -> tuple[Float[Tensor, ""], dict[str, float]]:
        """The same where the log-probabilities are known."""
        losses, figures = self.surrogate(logprobs, batch)
        loss, moved = policy_loss(
            logprobs, losses, batch, aggregation=self.aggregation, penalty=self.penalty
        )
        return loss, {**moved, **figures}


def policy_steps(
    turns: Sequence[CreditedTurn], advantages: Float[Tensor, " N"]
) -> list[PolicyStep]:
    """Each turn's probe with its advantage."""
    return [
        PolicyStep(turn.node, advantage)
        for turn, advantage in zip(turns, advantages.tolist(), strict=True)
    ]


def policy_batch(
    nodes: Sequence[Node],
    advantages: Sequence[Sequence[float]],
    system: System,
    *,
    aggregation: Aggregation,
) -> PolicyBatch:
    """The tensors of these probes; one number for each as its advantage, or one per token."""
    device = system.attacker.device
    rows = pad_rows(
        [node.context_ids for node in nodes],
        [node.probe_ids for node in nodes],
        pad_id=0,
        device=device,
    )
    width = rows.continuation_ids.shape[1]
    mask = padded([node.probe_mask for node in nodes], width).bool()
    gains = padded(advantages, 1 if all(len(own) == 1 for own in advantages) else width)
    gains = gains * _weights(nodes, width)
    return PolicyBatch(
        rows,
        padded([node.probe_logprobs for node in nodes], width).to(device),
        padded([node.reference_logprobs for node in nodes], width).to(device),
        mask.to(device),
        gains.to(device),
        float(aggregation_weight(mask, mode=aggregation, max_length=longest_probe(system))),
        sum(len(node.context_ids) + len(node.probe_ids) for node in nodes),
    )


def _weights(nodes: Sequence[Node], width: int) -> Float[Tensor, "B #T"]:
    """What each probe, or each of its tokens, is weighed by."""
    if all(len(node.probe_weights) == 1 for node in nodes):
        return padded([node.probe_weights for node in nodes], 1)
    every = [
        own if len(own) > 1 else own * len(node.probe_ids)
        for node, own in ((node, node.probe_weights) for node in nodes)
    ]
    return padded(every, width)


def collated(
    steps: Sequence[AdvantageStep], system: System, *, aggregation: Aggregation
) -> PolicyBatch:
    """The tensors of these steps."""
    nodes = [step.node for step in steps]
    advantages = [step.advantages for step in steps]
    return policy_batch(nodes, advantages, system, aggregation=aggregation)


def padded(lists: Sequence[Sequence[float]], width: int) -> Float[Tensor, "B T"]:
    """Lists as rows of float32, filled up with zeros on the right."""
    found = torch.zeros(len(lists), width)
    for row, own in enumerate(lists):
        found[row, : len(own)] = torch.tensor(own, dtype=torch.float32)
    return found


def longest_probe(system: System) -> int:
    """Tokens a probe may have at most."""
    return system.config.probe.max_new_tokens


def log_ratios(
    logprobs: Float[Tensor, "B T"],
    batch: PolicyBatch,
    *,
    level: RatioLevel,
) -> Float[Tensor, "B #T"]:
    """Attacker over sampling policy, nats: per token, or summed or averaged over each probe."""
    if level == "token":
        return logprobs - batch.behaviour_logprobs
    ratios = sequence_log_ratios(
        logprobs,
        batch.behaviour_logprobs,
        batch.mask,
        length_normalised=level == "sequence_mean",
    )
    return ratios[:, None]


def policy_loss(
    logprobs: Float[Tensor, "B T"],
    losses: Float[Tensor, "B #T"],
    batch: PolicyBatch,
    *,
    aggregation: Aggregation,
    penalty: KLPenalty,
) -> tuple[Float[Tensor, ""], dict[str, float]]:
    """The summed loss of a batch with its KL penalty, and how far the attacker has moved."""
    summed = aggregate(losses.expand_as(batch.mask), batch.mask, mode=aggregation, max_length=1)
    total = summed.total
    pull = penalty.losses(logprobs, batch.reference_logprobs, batch.behaviour_logprobs)
    if pull is not None:
        total = total + aggregate(pull, batch.mask, mode=aggregation, max_length=1).total
    now = logprobs.detach()
    moved = kl_estimates(batch.behaviour_logprobs, now, estimator="k3")
    ratios = importance_ratios(now - batch.behaviour_logprobs)
    return total, {
        **movement_figures(now, batch.behaviour_logprobs, batch.mask, weight=batch.weight),
        "policy_kl_nats": mean_of(moved, batch),
        "ratio": mean_of(ratios, batch),
        "advantage": mean_of(batch.advantages.expand_as(batch.mask), batch),
    }


def mean_of(values: Float[Tensor, "B #T"], batch: PolicyBatch) -> float:
    """Mean over the trained tokens of a batch; 0 if it has none."""
    return float(aggregate(values.detach().float(), batch.mask, mode="token_mean").mean())
