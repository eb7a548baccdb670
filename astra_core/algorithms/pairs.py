"""The skeleton of preference learning: pairs from a tree of turns, rows of them, and a loss.

An algorithm chooses a loss over two log-ratios; ``preference_loss`` does the rest.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from astra_core.algorithms import functional
from astra_core.algorithms.credit import (
    Backup,
    CreditOptions,
    credited_turns,
    flat_group_figures,
    values_and_groups,
)
from astra_core.algorithms.functional.preference import (
    copied_pair_losses,
    on_policy_weights,
    preference_metrics,
    sequence_log_ratios,
)
from astra_core.algorithms.movement import movement_figures
from astra_core.config import NonNegative, Positive
from astra_core.engine.logprobs import token_logprobs, token_logprobs_and_collisions
from astra_core.models.rows import TokenRows, pad_lists, pad_rows
from astra_core.rollout import Graph, Node
from astra_core.system import System


class PairSelection(CreditOptions):
    """Which siblings become a pair."""

    pairs: Literal["best_worst", "all"] = Field(
        "best_worst", description="Of each group of siblings."
    )
    margin: NonNegative = Field(
        0.1,
        description="A gap in reward up to it counts as noise and gives no pair; nor does a tie.",
    )
    midpoint: float | None = Field(
        None, description="If given, the chosen must reach it and the rejected stay below (MALT)."
    )
    backup: Backup = "none"


class PairOptions(PairSelection):
    """Which pairs, and how their log-ratios are counted."""

    beta: Positive = Field(0.1, description="Strength of the pull to the reference.")
    length_normalised: bool = Field(False, description="Log-ratios per token instead of summed.")


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """Two probes after one context; the first got the higher reward."""

    chosen: Node
    rejected: Node
    gap: float
    weight: float = 1.0

    @property
    def node(self) -> Node:
        """The turn that identifies its tree."""
        return self.chosen


@dataclass(frozen=True, slots=True)
class PreferenceBatch:
    """Pairs as rows: the chosen probes first, then their siblings in the same order.

    Attributes:
        reference_logprobs: Of every probe token under the reference, nats.
        behaviour_logprobs: Of every probe token under the policy that sampled, nats.
        pair_weights: What each pair counts in the loss.
    """

    rows: TokenRows
    reference_logprobs: Float[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    num_tokens: int
    behaviour_logprobs: Float[Tensor, "B T"]
    pair_weights: Float[Tensor, " N"]

    @property
    def weight(self) -> float:
        """The number of pairs."""
        return len(self.mask) / 2


def preference_pairs(graph: Graph, options: PairSelection) -> list[PreferencePair]:
    """Pairs of siblings whose returns differ by more than the margin, breadth first."""
    turns = credited_turns([graph], options)
    found = functional.preference_pairs(
        *values_and_groups(turns),
        min_margin=options.margin,
        midpoint=options.midpoint,
        pairs=options.pairs,
    )
    return [
        PreferencePair(
            turns[high].node,
            turns[low].node,
            turns[high].value - turns[low].value,
            turns[high].weight,
        )
        for high, low in found.tolist()
    ]


def pair_figures(graphs: Sequence[Graph], options: PairSelection) -> dict[str, float]:
    """How many groups of siblings there were, how many were flat, and how many pairs they gave."""
    found = sum(len(preference_pairs(graph, options)) for graph in graphs)
    return {**flat_group_figures(credited_turns(graphs, options)), "pairs": float(found)}


def preference_batch(pairs: Sequence[PreferencePair], system: System) -> PreferenceBatch:
    """The tensors of these pairs."""
    nodes = [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs]
    rows = pad_rows(
        [node.context_ids for node in nodes],
        [node.probe_ids for node in nodes],
        pad_id=0,
        device=system.attacker.device,
    )
    width, device = rows.continuation_mask.shape[1], system.attacker.device
    reference = pad_lists([node.reference_logprobs for node in nodes], width)
    behaviour = pad_lists([node.probe_logprobs for node in nodes], width)
    mask = pad_lists([node.probe_mask for node in nodes], width).bool()
    num_tokens = sum(len(node.context_ids) + len(node.probe_ids) for node in nodes)
    return PreferenceBatch(
        rows,
        reference.to(device),
        mask.to(device),
        num_tokens,
        behaviour.to(device),
        torch.tensor([pair.weight for pair in pairs], device=device),
    )


PairLosses = Callable[[Float[Tensor, " N"], Float[Tensor, " N"]], Float[Tensor, " N"]]
"""From the log-ratios of chosen and rejected probes to one loss per pair."""


def preference_loss(
    system: System,
    batch: PreferenceBatch,
    losses: PairLosses,
    *,
    beta: float,
    length_normalised: bool,
    copy_weight: float = 0.0,
    is_weighted: bool = False,
) -> tuple[Float[Tensor, ""], Mapping[str, float]]:
    """The summed loss of a batch and its metrics, for any loss over two log-ratios.

    Args:
        length_normalised: Log-ratios per token instead of summed.
        copy_weight: Of the chosen probes' negative log-likelihood per token, which is added.
        is_weighted: Multiplies each pair's loss by ``on_policy_weights`` of its two sides.
    """
    logprobs, weights = _logprobs_and_weights(system, batch, is_weighted=is_weighted)
    ratios = sequence_log_ratios(
        logprobs, batch.reference_logprobs, batch.mask, length_normalised=length_normalised
    )
    chosen, rejected = ratios.chunk(2)
    metrics = preference_metrics(chosen.detach(), rejected.detach(), beta=beta)
    num_pairs = max(len(chosen), 1)
    own = losses(chosen, rejected)
    figures = movement_figures(logprobs, batch.behaviour_logprobs, batch.mask, weight=batch.weight)
    if weights is not None:
        figures["pair_weight"] = float(weights.sum()) / num_pairs
        own = own * weights
    if copy_weight:
        copied = copied_pair_losses(logprobs.chunk(2)[0], batch.mask.chunk(2)[0])
        figures["copied_nll_nats"] = float(copied.detach().sum()) / num_pairs
        own = own + copy_weight * copied
    return (own * batch.pair_weights).sum(), {
        **figures,
        "reward_accuracy": float(metrics.accuracies.sum()) / num_pairs,
        "reward_margin": float(metrics.margins.sum()) / num_pairs,
        "chosen_reward": float(metrics.chosen_rewards.sum()) / num_pairs,
        "rejected_reward": float(metrics.rejected_rewards.sum()) / num_pairs,
    }


def _logprobs_and_weights(
    system: System, batch: PreferenceBatch, *, is_weighted: bool
) -> tuple[Float[Tensor, "B T"], Float[Tensor, " N"] | None]:
    """Log-probabilities under the attacker, and the weight of each pair if there is one."""
    model, plan = system.attacker.model, system.attacker.plan
    if not is_weighted:
        return token_logprobs(model, batch.rows, plan=plan), None
    logprobs, collisions = token_logprobs_and_collisions(model, batch.rows, plan=plan)
    chosen, rejected = on_policy_weights(logprobs, collisions, batch.mask).chunk(2)
    return logprobs, chosen * rejected
