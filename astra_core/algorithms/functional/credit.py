"""Credit over a tree of turns: how later turns count for a probe.

A forest is two vectors over nodes: a reward each and the index of the parent, -1 for a first turn.
Nodes may stand in any order. ``seeds`` tells first turns of different prompts apart.
"""

from collections import defaultdict
from itertools import combinations
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from astra_core.algorithms.functional.shapes import (
    require_alike,
    require_finite,
    require_rank,
    require_same_shape,
    require_share,
)
from astra_core.errors import ConfigurationError, DataError

Backup = Literal["max", "mean", "leaf_mean"]
"""What a node inherits from its children: the best of them, their mean (reward-to-go), or their
mean weighted by leaves (expected reward of a rollout drawn at random, MALT)."""


def backed_up_rewards(
    rewards: Float[Tensor, " N"],
    parents: Int[Tensor, " N"],
    *,
    discount: float,
    how: Backup,
    horizon: int | None = None,
) -> Float[Tensor, " N"]:
    """Each node's own reward plus ``discount`` times the backed-up rewards of its children.

    On a single path all three kinds are the discounted reward-to-go. The node's own reward counts
    in full whatever the number of leaves below it.

    ``horizon``: turns that count, the own one included; None is all. On a single path these are
    ``n_step_returns``.

    Returns reward units, without gradient.

    Raises ConfigurationError for an unknown ``how``, ``discount`` outside [0, 1] or ``horizon``
    below 1; DataError if ``parents`` holds an index that does not exist, or a cycle, or a reward is
    NaN or infinite.

    Source: Best child: the tree back-up of ASTRA-RL; mean over leaves: MALT, arXiv:2412.01928.
    """
    _check_backup(how, discount=discount, horizon=horizon)
    require_alike(1, rewards=rewards, parents=parents)
    require_finite(rewards=rewards)
    by_depth = levels(parents)
    own = rewards.detach()
    children = (parents >= 0).nonzero().flatten()
    shares = _num_leaves(by_depth, parents) if how == "leaf_mean" else torch.ones_like(parents)
    backed_up = own.clone()
    for _ in range(min(len(by_depth), horizon or len(by_depth)) - 1):
        worth = _inheritance(
            backed_up[children], parents[children], shares[children], how=how, num_nodes=len(own)
        )
        backed_up = own + discount * worth
    return backed_up


def _check_backup(how: str, *, discount: float, horizon: int | None) -> None:
    if how not in ("max", "mean", "leaf_mean"):
        msg = f"backup must be one of ['max', 'mean', 'leaf_mean'], got {how!r}; see Backup"
        raise ConfigurationError(msg)
    require_share("0 keeps each turn's own reward", discount=discount)
    if horizon is not None and horizon < 1:
        msg = f"horizon must be at least 1, got {horizon}; 1 keeps each turn's own reward"
        raise ConfigurationError(msg)


def _num_leaves(by_depth: list[Int[Tensor, " M"]], parents: Int[Tensor, " N"]) -> Tensor:
    """How many paths end at or below each node."""
    counts = torch.zeros_like(parents)
    for level in reversed(by_depth):
        counts[level] = counts[level].clamp(min=1)
        inner = level[parents[level] >= 0]
        counts = counts.index_add(0, parents[inner], counts[inner])
    return counts


def visit_weights(
    parents: Int[Tensor, " N"], seeds: Int[Tensor, " N"] | None = None
) -> Float[Tensor, " N"]:
    """How often a rollout drawn at random visits each node, scaled to a mean of 1 over its tree.

    A rollout begins with one of the first turns and goes on with one of the turns that follow, all
    of them alike. In a tree of width 4 and depth 2 there are four times as many second turns as
    first ones. Counted alike, the second turns decide four fifths of an update; by their visits
    both levels weigh the same, as in the policy gradient of the rollout.

    ``seeds``: the tree of each node; any integers. None: one tree.

    Returns positive numbers, float64.

    Raises DataError if ``parents`` holds an index that does not exist, or a cycle.

    Source:
        Sutton et al., Policy gradient methods (NIPS 1999), theorem 1: states count by their visits.
    """
    groups = sibling_groups(parents, seeds)
    trees = torch.zeros_like(parents) if seeds is None else seeds
    _, places, sizes = torch.unique(groups, return_inverse=True, return_counts=True)
    visits = 1.0 / sizes[places].double()
    for level in levels(parents)[1:]:
        visits[level] *= visits[parents[level]]
    _, own, counts = torch.unique(trees, return_inverse=True, return_counts=True)
    totals = visits.new_zeros(len(counts)).index_add(0, own, visits)
    scaled: Tensor = visits * (counts / totals)[own]
    return scaled


def _inheritance(
    values: Float[Tensor, " C"],
    parents: Int[Tensor, " C"],
    shares: Int[Tensor, " C"],
    *,
    how: Backup,
    num_nodes: int,
) -> Float[Tensor, " N"]:
    """What each node inherits from these children; 0 where it has none."""
    worth = values.new_zeros(num_nodes)
    if how == "max":
        return worth.scatter_reduce(0, parents, values, "amax", include_self=False)
    total = shares.new_zeros(num_nodes).index_add(0, parents, shares)
    return worth.index_add(0, parents, shares * values) / total.clamp(min=1)


def sibling_groups(
    parents: Int[Tensor, " N"], seeds: Int[Tensor, " N"] | None = None
) -> Int[Tensor, " N"]:
    """A number per node, equal for nodes that answered the same context.

    ``seeds``: the prompt of each node, which groups first turns; any integers. None: one prompt.

    Returns the parent's index, or for a first turn a number below 0 that stands for its seed; fit
    for ``group_advantages``, ``leave_one_out`` and ``preference_pairs``.
    """
    require_rank(1, parents=parents)
    if seeds is None:
        return parents
    require_same_shape(parents=parents, seeds=seeds)
    numbers: Tensor = torch.unique(seeds, return_inverse=True)[1]
    return torch.where(parents < 0, -1 - numbers, parents)


def preference_pairs(
    rewards: Float[Tensor, " N"],
    groups: Int[Tensor, " N"],
    *,
    min_margin: float = 0.0,
    midpoint: float | None = None,
    pairs: Literal["best_worst", "all"] = "best_worst",
) -> Int[Tensor, "K 2"]:
    """The best and the worst node of each group of siblings, as indices (chosen, rejected).

    A tie, or a lead of at most ``min_margin``, gives no pair: it would teach an arbitrary
    preference. Of equally good nodes the first is chosen, of equally bad ones the last rejected.

    Args:
        rewards: What the siblings are compared by, own or backed up.
        min_margin: Lead in reward units that a pair must exceed.
        midpoint: If given, the chosen must reach it and the rejected stay below (MALT: half-way
            between a good and a bad outcome).
        pairs: Of each group; ``all`` compares every two of its nodes.

    Returns:
        One row per pair, groups in the order in which their first nodes stand, better nodes first.

    Raises ConfigurationError if ``min_margin`` is negative.
    """
    if min_margin < 0:
        msg = f"min_margin must not be negative, got {min_margin}; 0 refuses ties only"
        raise ConfigurationError(msg)
    require_alike(1, rewards=rewards, groups=groups)
    require_finite(rewards=rewards)
    worth = rewards.detach().double().tolist()
    members: dict[int, list[int]] = defaultdict(list)
    for node, group in enumerate(groups.tolist()):
        members[group].append(node)
    kept = [
        (best, worst)
        for nodes in members.values()
        for best, worst in _candidates(sorted(nodes, key=lambda node: -worth[node]), pairs)
        if worth[best] - worth[worst] > min_margin
        and (midpoint is None or worth[worst] < midpoint <= worth[best])
    ]
    return torch.tensor(kept, dtype=torch.long, device=rewards.device).reshape(-1, 2)


def _candidates(ranked: list[int], pairs: str) -> list[tuple[int, int]]:
    return list(combinations(ranked, 2)) if pairs == "all" else [(ranked[0], ranked[-1])]


def levels(parents: Int[Tensor, " N"]) -> list[Int[Tensor, " M"]]:
    """Indices of the nodes at each depth, first turns first.

    Raises DataError if ``parents`` holds an index that does not exist, or a cycle.
    """
    num_nodes = len(parents)
    if num_nodes and not -1 <= int(parents.min()) <= int(parents.max()) < num_nodes:
        msg = (
            f"parents must lie in [-1, {num_nodes}), got {int(parents.min())} to "
            f"{int(parents.max())}; renumber them after dropping nodes"
        )
        raise DataError(msg)
    depths = torch.full_like(parents, -1)
    found: list[Tensor] = []
    at_level = parents < 0
    while bool(at_level.any()):
        depths[at_level] = len(found)
        found.append(at_level.nonzero().flatten())
        at_level = (parents >= 0) & at_level[parents.clamp(min=0)]
    if bool((depths < 0).any()):
        lost = int((depths < 0).nonzero()[0])
        msg = f"parents must lead to a first turn, node {lost} does not; there is a cycle"
        raise DataError(msg)
    return found
