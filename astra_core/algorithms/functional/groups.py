"""Groups of rollouts of the same prompt, and how their rewards are spread.

A group is named by an integer per rollout, so that groups may differ in size after failed
rollouts were dropped; a matrix ``[P, G]`` without names is taken row by row. Means and spreads
are computed in float64: equal float32 rewards then have a spread of exactly zero.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from astra_core.algorithms.functional.masking import MIN_SPREAD
from astra_core.algorithms.functional.shapes import require_finite, require_rank, require_same_shape


def num_flat_groups(
    rewards: Float[Tensor, "*shape"],
    groups: Int[Tensor, "*shape"] | None = None,
    *,
    min_spread: float = MIN_SPREAD,
) -> int:
    """Number of groups that teach nothing: one rollout, or a spread of at most ``min_spread``."""
    index = group_index(rewards, groups)
    spread = moments_of(rewards.detach().double().flatten(), index).spread
    return int((spread <= min_spread).sum())


@dataclass(frozen=True, slots=True)
class Moments:
    """Per group: how many, mean, sample standard deviation; per value: its distance to the mean."""

    count: Int[Tensor, " K"]
    mean: Float[Tensor, " K"]
    spread: Float[Tensor, " K"]
    centred: Float[Tensor, " B"]


def moments_of(values: Float[Tensor, " B"], index: Int[Tensor, " B"]) -> Moments:
    """The moments of each group; ``index`` names it for each value."""
    require_finite(rewards=values)
    num_groups = int(index.max()) + 1 if index.numel() else 0
    count = torch.bincount(index, minlength=num_groups)
    zeros = values.new_zeros(num_groups)
    mean = zeros.index_add(0, index, values) / count.clamp(min=1)
    centred = values - mean[index]
    squares = zeros.index_add(0, index, centred.square())
    spread = (squares / (count - 1).clamp(min=1)).sqrt()
    return Moments(count=count, mean=mean, spread=spread, centred=centred)


def group_index(
    rewards: Float[Tensor, "*shape"], groups: Int[Tensor, "*shape"] | None
) -> Int[Tensor, " B"]:
    """The group of each reward, counted from 0; the row of a matrix where groups have no names."""
    if groups is not None:
        require_same_shape(rewards=rewards, groups=groups)
        return compact(groups.flatten())
    require_rank(2, rewards=rewards)
    rows = torch.arange(rewards.shape[0], device=rewards.device)
    return rows.repeat_interleave(rewards.shape[1])


def compact(names: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
    """The same partition with names 0, 1, 2 ..., in the order of the given ones."""
    index: Tensor = torch.unique(names, return_inverse=True)[1]
    return index
