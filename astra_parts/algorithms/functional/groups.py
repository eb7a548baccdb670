"""Advantages without a value network: a rollout is compared with others of the same prompt.

Groups are named as in ``astra_core.algorithms.functional.groups``.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from astra_core.algorithms.functional.groups import compact, group_index, moments_of
from astra_core.algorithms.functional.masking import MIN_SPREAD
from astra_core.algorithms.functional.shapes import require_alike, require_finite
from astra_core.errors import ConfigurationError

AdvantageScale = Literal["group", "batch", "none"]
"""What centred rewards are divided by: the spread of their group, that of all, or nothing."""


def group_advantages(
    rewards: Float[Tensor, "*shape"],
    groups: Int[Tensor, "*shape"] | None = None,
    *,
    scale: AdvantageScale = "group",
    min_spread: float = MIN_SPREAD,
) -> Float[Tensor, "*shape"]:
    """Rewards standardised within each group of rollouts.

    The spread is the sample standard deviation (Bessel, ``ddof`` 1), as in ``torch.std``, TRL and
    verl: groups are small, and with the population's two rollouts would count 1.41 times more
    than with eight. A group of one, or one whose spread is at or below ``min_spread``, teaches
    nothing and gets exact zeros; ``num_flat_groups`` counts these. Above it no constant is added
    to the spread.

    Args:
        groups: Any integers, equal for rollouts of one prompt. None: the last axis is the group.
        scale: ``group`` divides by the spread of each group. ``batch`` divides by that of all
            rewards given, centres included, so that a group that hardly differs is not blown up.
            ``none`` only centres, so that easy and hard prompts keep their own scale.

    Returns dimensionless advantages (reward units if not scaled), without gradient; each group sums
    to zero up to rounding.

    Raises ConfigurationError for an unknown ``scale``.

    Source: DeepSeekMath, arXiv:2402.03300, section 4.1.2; not scaling: Dr. GRPO, arXiv:2503.20783;
    by the batch: Lite PPO, arXiv:2508.08221.
    """
    if scale not in ("group", "batch", "none"):
        msg = f"scale must be 'group', 'batch' or 'none', got {scale!r}; see AdvantageScale"
        raise ConfigurationError(msg)
    index = group_index(rewards, groups)
    values = rewards.detach().double().flatten()
    moments = moments_of(values, index)
    spread = moments.spread[index]
    whole = moments_of(values, torch.zeros_like(index)).spread if scale == "batch" else spread
    advantages = moments.centred / (1 if scale == "none" else whole.clamp(min=min_spread))
    kept = advantages.where(spread > min_spread, torch.zeros_like(advantages))
    return kept.to(rewards.dtype).reshape(rewards.shape)


def group_advantages_over_runs(
    rewards: Float[Tensor, " B"],
    groups: Int[Tensor, " B"],
    runs: Int[Tensor, " B"],
    *,
    min_spread: float = MIN_SPREAD,
) -> Float[Tensor, " B"]:
    """Rewards standardised by the mean and the spread of their group's *run means*.

    For several sequences per run, such as the turns of one rollout: a long run then weighs no more
    in the baseline than a short one.

    Args:
        runs: Equal for sequences of one run; compared within a group only.
        min_spread: In reward units, of the run means.

    Returns advantages without gradient. With a single run in a group they are only centred; where
    run means differ by ``min_spread`` or less, exact zeros.

    Source: NexRL 1.4.0, two-stage group advantages.
    """
    require_alike(1, rewards=rewards, groups=groups, runs=runs)
    group_index, run_index = compact(groups), compact(runs)
    run_index = compact(group_index * max(len(rewards), 1) + run_index)
    values = rewards.detach().double()
    means = moments_of(values, run_index).mean
    group_of_run = group_index.new_zeros(len(means)).scatter(0, run_index, group_index)
    moments = moments_of(means, group_of_run)
    alone = (moments.count == 1)[group_index]
    spread = moments.spread[group_index]
    divisor = spread.clamp(min=min_spread).where(~alone, torch.ones_like(spread))
    advantages = (values - moments.mean[group_index]) / divisor
    taught = alone | (spread > min_spread)
    return advantages.where(taught, torch.zeros_like(advantages)).to(rewards.dtype)


def leave_one_out(
    rewards: Float[Tensor, "*shape"], groups: Int[Tensor, "*shape"] | None = None
) -> Float[Tensor, "*shape"]:
    """Rewards minus the mean of the *other* rollouts of their group; unbiased, since independent.

    ``groups``: any integers, equal for rollouts of one prompt. None: the last axis is the group.

    Returns advantages in reward units, without gradient; 0 for a rollout without siblings.

    Source: Kool, van Hoof and Welling, Buy 4 REINFORCE Samples (2019); RLOO, arXiv:2402.14740.
    """
    index = group_index(rewards, groups)
    moments = moments_of(rewards.detach().double().flatten(), index)
    # r - (S - r) / (n - 1) = (r - S / n) * n / (n - 1)
    growth = moments.count / (moments.count - 1).clamp(min=1)
    return (moments.centred * growth[index]).to(rewards.dtype).reshape(rewards.shape)


def mean_baseline_advantages(rewards: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Rewards minus the batch's mean, without gradient; empty for an empty batch."""
    require_finite(rewards=rewards)
    if rewards.numel() == 0:
        return rewards.detach()
    return rewards.detach() - rewards.detach().mean()


def running_mean(rewards: Float[Tensor, " B"], *, mean: float, num_seen: int) -> tuple[float, int]:
    """Mean of everything seen so far and how much that is, after ``rewards`` have come in.

    The baseline of plain REINFORCE: subtract the mean from *before* the batch, which does not
    depend on the batch, then update.

    ``mean``: of the rewards seen before; anything when there were none.
    """
    require_finite(rewards=rewards)
    total = num_seen + rewards.numel()
    if rewards.numel() == 0:
        return mean, total
    batch_mean = float(rewards.detach().double().mean())
    start = mean if num_seen else batch_mean
    return start + (batch_mean - start) * (rewards.numel() / total), total
