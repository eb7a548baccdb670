"""What the policy-gradient and imitation algorithms share: probes as tensors, and a loss over them.

Advantages, log-ratios and surrogates are the pure functions of ``functional``; the sum over tokens
and what it is divided by are ``functional.aggregate``'s, so micro-batches add up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from astra_core.algorithms.credit import CreditedTurn, CreditOptions
from astra_core.algorithms.functional import (
    Aggregation,
    aggregate,
    aggregation_weight,
    importance_ratios,
    kl_estimates,
    sequence_log_ratios,
)
from astra_core.algorithms.kl_penalty import KLOptions, KLPenalty
from astra_core.models.rows import TokenRows, pad_rows
from astra_core.rollout import Node
from astra_core.system import System


class PolicyOptions(CreditOptions, KLOptions):
    """Credit over turns, KL, and how tokens are counted."""

    aggregation: Aggregation = Field(
        default="token_mean",
        description="All tokens alike, the mean or the sum within each probe and then over probes, "
        "or the sum divided by the longest a probe may be.",
    )


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """A probe, and what the log-probability of every token of it is weighted by."""

    node: Node
    advantage: float


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
    is_column = all(len(own) == 1 for own in advantages)
    return PolicyBatch(
        rows,
        padded([node.probe_logprobs for node in nodes], width).to(device),
        padded([node.reference_logprobs for node in nodes], width).to(device),
        mask.to(device),
        padded(advantages, 1 if is_column else width).to(device),
        float(aggregation_weight(mask, mode=aggregation, max_length=longest_probe(system))),
        sum(len(node.context_ids) + len(node.probe_ids) for node in nodes),
    )


def collated(
    steps: Sequence[PolicyStep], system: System, *, aggregation: Aggregation
) -> PolicyBatch:
    """The tensors of these steps."""
    nodes = [step.node for step in steps]
    return policy_batch(nodes, [(s.advantage,) for s in steps], system, aggregation=aggregation)


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
    level: Literal["token", "sequence", "sequence_mean"],
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
    pull = penalty.losses(logprobs, batch.reference_logprobs)
    if pull is not None:
        total = total + aggregate(pull, batch.mask, mode=aggregation, max_length=1).total
    now = logprobs.detach()
    moved = kl_estimates(batch.behaviour_logprobs, now, estimator="k3")
    ratios = importance_ratios(now - batch.behaviour_logprobs)
    return total, {
        "policy_kl_nats": mean_of(moved, batch),
        "ratio": mean_of(ratios, batch),
        "advantage": mean_of(batch.advantages.expand_as(batch.mask), batch),
    }


def mean_of(values: Float[Tensor, "B #T"], batch: PolicyBatch) -> float:
    """Mean over the trained tokens of a batch; 0 if it has none."""
    return float(aggregate(values.detach().float(), batch.mask, mode="token_mean").mean())
