"""Credit over turns: how later turns count for a probe, on trees of nodes.

The mathematics is ``functional.backed_up_rewards``; here trees of nodes become the vectors it
reads, without turns that failed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from astra_core.algorithms.functional import (
    MIN_SPREAD,
    backed_up_rewards,
    num_flat_groups,
    sibling_groups,
    visit_weights,
)
from astra_core.config import Count, Probability, Section
from astra_core.rollout import Graph, Node
from astra_core.settings.sections import refuse_unread

Backup = Literal["none", "max", "mean", "leaf_mean"]
TurnWeights = Literal["equal", "visits"]
TURN_WEIGHTS = (
    "What a turn counts in the loss: as any other, or by how often a rollout drawn at random from "
    "the tree visits it, so that first turns weigh as much as the many that follow them."
)


class CreditOptions(Section):
    """How later turns count towards an earlier one."""

    backup: Backup = Field(
        "mean",
        description="The turn alone (none), plus the best turn that follows (max), their mean "
        "(reward-to-go), or their mean weighted by leaves (MALT: a rollout drawn at random).",
    )
    discount: Probability = Field(0.9, description="Of each later turn, in the backup.")
    horizon: Count | None = Field(
        None, description="Turns that count, the own one included (n-step); null is all."
    )

    turn_weights: TurnWeights = Field("equal", description=TURN_WEIGHTS)

    @model_validator(mode="after")
    def _what_follows_is_looked_at(self) -> Self:
        if self.backup == "none":
            refuse_unread(self, "discount", "horizon", when="backup is 'none'")
        return self


@dataclass(frozen=True, slots=True)
class CreditedTurn:
    """A turn that can be learned from, and its value.

    Attributes:
        node: It did not fail, and at least one of its tokens is trained.
        group: Equal for siblings, different for all others of the experience.
        weight: What it counts in the loss; 1 on average over a tree.
    """

    node: Node
    group: int
    value: float
    weight: float = 1.0


def own_reward(node: Node) -> float:
    """The reward of the turn itself."""
    return node.reward


@dataclass(frozen=True, slots=True)
class Forest:
    """The turns of several graphs that did not fail, graph by graph and breadth first.

    ``parents``: place of the turn before each; -1 for a first one.
    """

    nodes: tuple[Node, ...]
    parents: Int[Tensor, " N"]
    seeds: Int[Tensor, " N"]


def forest(graphs: Sequence[Graph]) -> Forest:
    """The turns of these graphs as vectors."""
    nodes: list[Node] = []
    parents: list[int] = []
    seeds: list[int] = []
    for seed, graph in enumerate(graphs):
        level = [(node, -1) for node in alive(graph.children)]
        while level:
            first = len(nodes)
            nodes += [node for node, _ in level]
            parents += [parent for _, parent in level]
            seeds += [seed] * len(level)
            level = [
                (child, place)
                for place, (node, _) in enumerate(level, first)
                for child in alive(node.children)
            ]
    return Forest(tuple(nodes), torch.tensor(parents).long(), torch.tensor(seeds).long())


def alive(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The turns that did not fail and were judged."""
    return tuple(node for node in nodes if node.is_judged)


def can_teach(node: Node) -> bool:
    """True for a turn that did not fail, was judged and has a trained token."""
    return node.is_judged and any(node.probe_mask)


def credited_turns(
    graphs: Sequence[Graph], options: CreditOptions, *, reward: Callable[[Node], float] = own_reward
) -> list[CreditedTurn]:
    """Every turn that can be learned from, graph by graph and breadth first."""
    grown = forest(graphs)
    # float64, since small differences are standardised.
    values = torch.tensor([reward(node) for node in grown.nodes], dtype=torch.float64)
    if options.backup != "none":
        values = backed_up_rewards(
            values,
            grown.parents,
            discount=options.discount,
            how=options.backup,
            horizon=options.horizon,
        )
    groups = sibling_groups(grown.parents, grown.seeds)
    weights = turn_weights(grown, options.turn_weights)
    rows = zip(grown.nodes, groups.tolist(), values.tolist(), weights, strict=True)
    return [
        CreditedTurn(node, group, value, weight)
        for node, group, value, weight in rows
        if can_teach(node)
    ]


def turn_weights(grown: Forest, how: TurnWeights) -> list[float]:
    """What each turn counts in the loss."""
    if how == "equal":
        return [1.0] * len(grown.nodes)
    found: list[float] = visit_weights(grown.parents, grown.seeds).tolist()
    return found


def values_and_groups(
    turns: Sequence[CreditedTurn],
) -> tuple[Float[Tensor, " N"], Int[Tensor, " N"]]:
    """Value and sibling group of each turn; float64, since small differences are standardised."""
    return (
        torch.tensor([turn.value for turn in turns], dtype=torch.float64),
        torch.tensor([turn.group for turn in turns], dtype=torch.long),
    )


def flat_group_figures(
    turns: Sequence[CreditedTurn], *, min_spread: float = MIN_SPREAD
) -> dict[str, float]:
    """The number of sibling groups, and of those with equal values, which give no gradient."""
    values, groups = values_and_groups(turns)
    return {
        "groups": float(len(set(groups.tolist()))),
        "flat_groups": float(num_flat_groups(values, groups, min_spread=min_spread)),
    }
