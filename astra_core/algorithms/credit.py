"""Credit over turns: what a probe deserves for the turns that came after it, on trees of nodes.

The mathematics is that of ``functional.backed_up_rewards``; here it runs over ``Node`` itself,
leaves out turns that failed, and can look only so many turns ahead.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from astra_core.algorithms.functional import MIN_SPREAD, num_flat_groups
from astra_core.config import Count, Probability, Section
from astra_core.rollout import Graph, Node

Backup = Literal["none", "max", "mean", "leaf_mean"]


class CreditOptions(Section):
    """How later turns count towards an earlier one."""

    backup: Backup = Field(
        default="mean",
        description="The turn alone (none), plus the best turn that follows (max), their mean "
        "(reward-to-go), or their mean weighted by leaves (MALT: a rollout drawn at random).",
    )
    discount: Probability = Field(default=0.9, description="Of each later turn, in the backup.")
    horizon: Count | None = Field(
        default=None, description="Turns that count, the own one included (n-step); null is all."
    )


@dataclass(frozen=True, slots=True)
class CreditedTurn:
    """A turn that can be learned from, and what it is worth.

    Attributes:
        node: It did not fail, and at least one of its tokens is trained.
        group: Equal for siblings, different for all others of the experience.
        value: Its reward and what was backed up to it.
    """

    node: Node
    group: int
    value: float


def own_reward(node: Node) -> float:
    """The reward of the turn itself."""
    return node.reward


def returns(
    node: Node,
    *,
    backup: Backup,
    discount: float,
    horizon: int | None = None,
    reward: Callable[[Node], float] = own_reward,
) -> float:
    """The node's reward plus the discounted best, or mean, return of the turns that follow.

    Along a single path every backup but ``none`` is the discounted reward-to-go, or with a horizon
    the n-step return without bootstrap (Sutton and Barto, 2nd ed., eq. 3.8 and 7.1). In a tree
    ``mean`` is its average over what was tried, and ``leaf_mean`` gives each leaf below the same
    say (MALT, arXiv:2412.01928).

    Args:
        node: A turn that did not fail.
        backup: See ``CreditOptions``.
        discount: Of the next turn, in [0, 1].
        horizon: Turns that count, the own one included; None is all.
        reward: Of one turn by itself.
    """
    children = alive(node.children)
    if backup == "none" or not children or horizon == 1:
        return reward(node)
    left = None if horizon is None else horizon - 1
    values = [
        returns(child, backup=backup, discount=discount, horizon=left, reward=reward)
        for child in children
    ]
    if backup == "max":
        return reward(node) + discount * max(values)
    shares = [num_leaves(child) if backup == "leaf_mean" else 1 for child in children]
    mean = sum(share * value for share, value in zip(shares, values, strict=True)) / sum(shares)
    return reward(node) + discount * mean


def num_leaves(node: Node) -> int:
    """How many rollouts pass through the node, those that failed later cut at their last turn."""
    return sum(num_leaves(child) for child in alive(node.children)) or 1


def alive(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The turns that did not fail."""
    return tuple(node for node in nodes if not node.has_failed)


def rollouts(graph: Graph) -> Iterator[tuple[Node, ...]]:
    """Every path of turns that did not fail, from the first to where none follows."""

    def walk(nodes: Sequence[Node], before: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
        for node in alive(nodes):
            here = (*before, node)
            if alive(node.children):
                yield from walk(node.children, here)
            else:
                yield here

    yield from walk(graph.children, ())


def can_teach(node: Node) -> bool:
    """True for a turn that did not fail and has a token that is trained."""
    return not node.has_failed and any(node.probe_mask)


def credited_turns(
    graphs: Sequence[Graph],
    options: CreditOptions,
    *,
    reward: Callable[[Node], float] = own_reward,
) -> list[CreditedTurn]:
    """Every turn that can be learned from, graph by graph and breadth first."""
    siblings = [group for graph in graphs for group in graph.groups()]
    return [
        CreditedTurn(
            node,
            number,
            returns(
                node,
                backup=options.backup,
                discount=options.discount,
                horizon=options.horizon,
                reward=reward,
            ),
        )
        for number, group in enumerate(siblings)
        for node in group
        if can_teach(node)
    ]


def values_and_groups(
    turns: Sequence[CreditedTurn],
) -> tuple[Float[Tensor, " N"], Int[Tensor, " N"]]:
    """Worth and sibling group of each turn; float64, since small differences are standardised."""
    return (
        torch.tensor([turn.value for turn in turns], dtype=torch.float64),
        torch.tensor([turn.group for turn in turns], dtype=torch.long),
    )


def flat_group_figures(
    turns: Sequence[CreditedTurn], *, min_spread: float = MIN_SPREAD
) -> dict[str, float]:
    """How many groups of siblings there were, and how many were of one worth, hence useless."""
    values, groups = values_and_groups(turns)
    return {
        "groups": float(len(set(groups.tolist()))),
        "flat_groups": float(num_flat_groups(values, groups, min_spread=min_spread)),
    }
