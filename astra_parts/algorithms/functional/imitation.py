"""Imitation: of the attacker's own best rollouts, or of a teacher's view of its tokens.

Expert iteration keeps some rollouts (by threshold, by rank, or at random in proportion to reward)
and trains on their likelihood. On-policy distillation turns a teacher's log-probabilities of the
attacker's own tokens into advantages for any policy-gradient surrogate.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from astra_core.algorithms.functional.shapes import (
    require_finite,
    require_positive,
    require_rank,
    require_same_shape,
)
from astra_core.errors import ConfigurationError
from astra_parts.algorithms.functional.advantages import n_step_returns, reward_to_go


def threshold_selection(rewards: Float[Tensor, " N"], *, threshold: float) -> Bool[Tensor, " N"]:
    """True for every rollout whose reward reaches ``threshold``.

    ``threshold``: in reward units; a reward equal to it is kept.

    Source: Expert iteration as in NIP; ReST, arXiv:2308.08998, section 3.
    """
    require_finite(rewards=rewards)
    return rewards >= threshold


def top_k_selection(rewards: Float[Tensor, " N"], *, k: int) -> Bool[Tensor, " N"]:
    """True for the ``k`` best rollouts, or for all if there are fewer; of equals the first win.

    Raises ConfigurationError if ``k`` is negative.

    Source: RAFT, arXiv:2304.06767, algorithm 1.
    """
    if k < 0:
        msg = f"k must not be negative, got {k}; 0 keeps nothing"
        raise ConfigurationError(msg)
    require_rank(1, rewards=rewards)
    require_finite(rewards=rewards)
    best = rewards.sort(descending=True, stable=True).indices[:k]
    selected = torch.zeros_like(rewards, dtype=torch.bool)
    selected[best] = True
    return selected


def reward_weighted_probabilities(
    rewards: Float[Tensor, " N"], *, minimum: float | None = None, exploration: float = 0.01
) -> Float[Tensor, " N"]:
    """Probability of drawing each rollout, in proportion to its reward above ``minimum``.

    Args:
        minimum: Reward at or below which only exploration draws a rollout; None: the lowest of all.
        exploration: Mass spread evenly over all before normalising, so that nothing is impossible.

    Returns probabilities that sum to 1; uniform when no reward stands out; empty for no rollouts.

    Raises ConfigurationError if ``exploration`` is negative.

    Source: Expert iteration with weighted sampling as in NIP, which ends in nan for equal rewards.
    """
    if exploration < 0:
        msg = f"exploration must not be negative, got {exploration}; 0.01 is the usual mass"
        raise ConfigurationError(msg)
    require_rank(1, rewards=rewards)
    require_finite(rewards=rewards)
    if rewards.numel() == 0:
        return rewards.detach()
    floor = rewards.min() if minimum is None else minimum
    weights = (rewards.detach() - floor).clamp(min=0)
    uniform = torch.full_like(weights, 1 / len(weights))
    total = weights.sum()
    shares = torch.where(total > 0, weights / total, uniform)
    return (shares + exploration * uniform) / (1 + exploration)


def selection_size(num_rollouts: int, *, fraction: float) -> int:
    """How many rollouts to draw: ``fraction`` of them, rounded down, but at least one of any.

    Raises ConfigurationError if ``fraction`` is not positive.
    """
    require_positive("0.5 draws half as many as there are", fraction=fraction)
    return max(int(num_rollouts * fraction), min(num_rollouts, 1))


def distillation_advantages(
    logprobs: Float[Tensor, "B T"],
    teacher_logprobs: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    coefficient: float,
    discount: float = 0.0,
    num_steps: int | None = None,
) -> Float[Tensor, "B T"]:
    """Advantages: how much likelier the teacher finds each chosen token than the attacker does.

    ``coefficient * (log teacher - log attacker)``: a policy gradient with these descends the
    reverse KL attacker || teacher. Taking the log-ratio as a loss does not: its gradient ignores
    the teacher.

    Args:
        logprobs: Of the attacker that sampled, in nats.
        teacher_logprobs: Of the teacher at the same tokens; where masked anything, nan included.
        discount: Share of the next token's advantage added to each, in [0, 1]; with 0 every token
            has only its own.
        num_steps: Tokens whose advantages are added, the own one included; a masked one is a step
            that adds nothing. None: all that follow, masked ones stepped over.

    Returns advantages without gradient; 0 where masked.

    Raises ConfigurationError if ``discount`` lies outside [0, 1] or ``num_steps`` is below 1.

    Source:
        GKD, arXiv:2306.13649, and Thinking Machines, "On-Policy Distillation" (2025); NexRL 1.4.0.
    """
    require_same_shape(logprobs=logprobs, teacher_logprobs=teacher_logprobs, mask=mask)
    advantages = coefficient * (teacher_logprobs - logprobs).detach()
    if num_steps is None:
        return reward_to_go(advantages, discount=discount, mask=mask)
    nothing = torch.zeros_like(advantages)
    kept = advantages.where(mask, nothing)
    return n_step_returns(kept, num_steps=num_steps, discount=discount).where(mask, nothing)
