"""Preference pairs from a tree of turns, and the tensors of a batch of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from astra_core.algorithms.functional.preference import preference_metrics, sequence_log_ratios
from astra_core.config import NonNegative, Probability, Section
from astra_core.models.rows import TokenRows, pad_rows, token_logprobs
from astra_core.rollout import Graph, Node
from astra_core.system import System


class PairOptions(Section):
    """Which siblings become a pair."""

    pairs: Literal["best_worst", "all"] = Field(
        default="best_worst", description="Of each group of siblings."
    )
    margin: NonNegative = Field(
        default=0.1,
        description="A gap in reward up to it is noise and no pair; ties never are one.",
    )
    backup: Literal["none", "max", "mean"] = Field(
        default="none", description="How later turns count towards an earlier one."
    )
    discount: Probability = Field(default=0.9, description="Of each later turn, in the backup.")
    length_normalised: bool = Field(
        default=False, description="Log-ratios per token instead of summed."
    )


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """Two probes after one context; the first drew the higher reward."""

    chosen: Node
    rejected: Node
    gap: float


@dataclass(frozen=True, slots=True)
class PreferenceBatch:
    """Pairs as rows: the chosen probes first, then their siblings in the same order.

    Attributes:
        rows: Contexts and probes.
        reference_logprobs: Of every probe token under the reference, nats.
        mask: True at the tokens that are trained.
        num_tokens: Real tokens in ``rows``.
    """

    rows: TokenRows
    reference_logprobs: Float[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    num_tokens: int

    @property
    def weight(self) -> float:
        """The number of pairs."""
        return len(self.mask) / 2


def returns(node: Node, *, backup: str, discount: float) -> float:
    """The node's reward plus the discounted best, or mean, return of the turns that follow."""
    values = [
        returns(child, backup=backup, discount=discount)
        for child in node.children
        if not child.has_failed
    ]
    if backup == "none" or not values:
        return node.reward
    later = max(values) if backup == "max" else sum(values) / len(values)
    return node.reward + discount * later


def preference_pairs(graph: Graph, options: PairOptions) -> list[PreferencePair]:
    """Pairs of siblings whose returns differ by more than the margin, breadth first."""
    found = []
    for group in graph.groups():
        ranked = sorted(
            (
                (returns(node, backup=options.backup, discount=options.discount), node)
                for node in group
                if not node.has_failed and any(node.probe_mask)
            ),
            key=lambda entry: -entry[0],
        )
        candidates = (
            (list(combinations(ranked, 2)) if options.pairs == "all" else [(ranked[0], ranked[-1])])
            if len(ranked) > 1
            else []
        )
        found += [
            PreferencePair(chosen, rejected, high - low)
            for (high, chosen), (low, rejected) in candidates
            if high - low > options.margin
        ]
    return found


def preference_batch(pairs: Sequence[PreferencePair], system: System) -> PreferenceBatch:
    """The tensors of these pairs."""
    nodes = [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs]
    rows = pad_rows(
        [node.context_ids for node in nodes],
        [node.probe_ids for node in nodes],
        pad_id=0,
        device=system.attacker.device,
    )
    reference = torch.zeros(rows.continuation_mask.shape)
    mask = torch.zeros(rows.continuation_mask.shape, dtype=torch.bool)
    for row, node in enumerate(nodes):
        reference[row, : len(node.probe_ids)] = torch.tensor(node.reference_logprobs)
        mask[row, : len(node.probe_ids)] = torch.tensor(node.probe_mask)
    device = system.attacker.device
    num_tokens = sum(len(node.context_ids) + len(node.probe_ids) for node in nodes)
    return PreferenceBatch(rows, reference.to(device), mask.to(device), num_tokens)


def preference_loss(
    system: System,
    batch: PreferenceBatch,
    losses: Callable[[Float[Tensor, " N"], Float[Tensor, " N"]], Float[Tensor, " N"]],
    *,
    beta: float,
    length_normalised: bool,
) -> tuple[Float[Tensor, ""], Mapping[str, float]]:
    """The summed loss of a batch and its metrics, for any loss over two log-ratios."""
    logprobs = token_logprobs(system.attacker.model, batch.rows)
    ratios = sequence_log_ratios(
        logprobs, batch.reference_logprobs, batch.mask, length_normalised=length_normalised
    )
    chosen, rejected = ratios.chunk(2)
    metrics = preference_metrics(chosen.detach(), rejected.detach(), beta=beta)
    return losses(chosen, rejected).sum(), {
        "reward_accuracy": float(metrics.accuracies.float().mean()),
        "reward_margin": float(metrics.margins.mean()),
        "chosen_reward": float(metrics.chosen_rewards.mean()),
        "rejected_reward": float(metrics.rejected_rewards.mean()),
    }
