"""Returns and advantages along time: how much better a step was than expected.

Time is the last axis, tokens or turns; any axes may stand before it. Everything here is computed
without gradient: an advantage that carries one trains the value head through the policy loss.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from astra_core.algorithms.functional.shapes import require_alike, require_same_shape, require_share
from astra_core.errors import ConfigurationError

_FUTURE = "1 looks at the whole future"


def gae(
    rewards: Float[Tensor, "*batch T"],
    values: Float[Tensor, "*batch T"],
    next_values: Float[Tensor, "*batch T"],
    *,
    done: Bool[Tensor, "*batch T"],
    terminated: Bool[Tensor, "*batch T"],
    discount: float,
    decay: float,
    mask: Bool[Tensor, "*batch T"] | None = None,
) -> tuple[Float[Tensor, "*batch T"], Float[Tensor, "*batch T"]]:
    """Generalised advantage estimates and the returns that the value head should predict.

    An episode that *terminated* has no future, so its last next value counts as 0. One that was
    only *cut* (``done`` and not ``terminated``: the turn limit, a full context) has one, so its
    next value counts. Neither lets the episode behind it leak in.

    Args:
        next_values: Predicted after it, before a reset; ignored where ``terminated``.
        done: The step is the last of its episode, for whichever reason.
        terminated: The step ended its episode for good; implies ``done``.
        decay: Lambda, in [0, 1]: 0 trusts the value head, 1 the rewards.
        mask: Steps that exist; the others are stepped over and have advantage 0. None: all.

    Returns advantages, and advantages plus values.

    Raises ConfigurationError if ``discount`` or ``decay`` lies outside [0, 1].

    Source: Schulman et al., arXiv:1506.02438, eq. 16.
    """
    require_share(_FUTURE, discount=discount, decay=decay)
    require_same_shape(
        rewards=rewards,
        values=values,
        next_values=next_values,
        done=done,
        terminated=terminated,
        mask=rewards if mask is None else mask,
    )
    future = next_values.detach().where(~terminated, torch.zeros_like(next_values))
    deltas = rewards.detach() + discount * future - values.detach()
    advantages = _discounted_sums(deltas, discount * decay, done=done | terminated, mask=mask)
    return advantages, advantages + values.detach()


def token_gae(
    rewards: Float[Tensor, "B T"],
    values: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    discount: float,
    decay: float,
    final_values: Float[Tensor, " B"] | None = None,
) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
    """Generalised advantage estimates over the kept tokens of each row, ignoring the others.

    Padding on either side and stretches between two probes (the target's words) are stepped over:
    the next value of a token is that of the next kept token.

    ``final_values``: value after each row's last token, for rows that were cut; 0 for those that
    ended, which is also the meaning of None.

    Returns advantages, and advantages plus values; both 0 where masked.

    Raises ConfigurationError if ``discount`` or ``decay`` lies outside [0, 1].

    Source: Schulman et al., arXiv:1506.02438, eq. 16.
    """
    require_share(_FUTURE, discount=discount, decay=decay)
    require_alike(2, rewards=rewards, values=values, mask=mask)
    known = values.detach().where(mask, torch.zeros_like(values))
    following = known.new_zeros(len(known)) if final_values is None else final_values.detach()
    require_same_shape(rows=known.new_empty(len(known)), final_values=following)
    next_values = torch.zeros_like(known)
    for step in reversed(range(known.shape[-1])):
        next_values[:, step] = following
        following = known[:, step].where(mask[:, step], following)
    never = torch.zeros_like(mask)
    return gae(
        rewards,
        known,
        next_values,
        done=never,
        terminated=never,
        discount=discount,
        decay=decay,
        mask=mask,
    )


def reward_to_go(
    rewards: Float[Tensor, "*batch T"],
    *,
    discount: float,
    done: Bool[Tensor, "*batch T"] | None = None,
    mask: Bool[Tensor, "*batch T"] | None = None,
) -> Float[Tensor, "*batch T"]:
    """Discounted sum of the rewards from each step to the end of its episode.

    Args:
        done: The step is the last of its episode, so several may stand in one row; None: one per
            row.
        mask: Steps that exist; the others are stepped over and get 0. None: all.

    Raises ConfigurationError if ``discount`` lies outside [0, 1].

    Source: Sutton and Barto, Reinforcement Learning (2nd ed.), eq. 3.8.
    """
    require_share(_FUTURE, discount=discount)
    require_same_shape(
        rewards=rewards,
        done=rewards if done is None else done,
        mask=rewards if mask is None else mask,
    )
    return _discounted_sums(rewards.detach(), discount, done=done, mask=mask)


def n_step_returns(
    rewards: Float[Tensor, "*batch T"], *, num_steps: int, discount: float
) -> Float[Tensor, "*batch T"]:
    """Discounted sum of the next ``num_steps`` rewards, or of those left in the row.

    ``num_steps``: rewards in each sum, the step's own among them; at least 1.

    Raises ConfigurationError if ``num_steps`` is below 1 or ``discount`` outside [0, 1].

    Source: Sutton and Barto, Reinforcement Learning (2nd ed.), eq. 7.1 without its bootstrap term.
    """
    require_share(_FUTURE, discount=discount)
    if num_steps < 1:
        msg = f"num_steps must be at least 1, got {num_steps}; 1 gives the rewards themselves"
        raise ConfigurationError(msg)
    length = rewards.shape[-1]
    returns = torch.zeros_like(rewards)
    for ahead in range(min(num_steps, length)):
        returns[..., : length - ahead] += discount**ahead * rewards.detach()[..., ahead:]
    return returns


def _discounted_sums(
    terms: Float[Tensor, "*batch T"],
    factor: float,
    *,
    done: Bool[Tensor, "*batch T"] | None = None,
    mask: Bool[Tensor, "*batch T"] | None = None,
) -> Float[Tensor, "*batch T"]:
    """Suffix sums ``s_t = x_t + factor * s_{t+1}``, cut after ``done``, only within ``mask``."""
    sums = torch.zeros_like(terms)
    running = terms.new_zeros(terms.shape[:-1])
    for step in reversed(range(terms.shape[-1])):
        if done is not None:
            running = running.where(~done[..., step], torch.zeros_like(running))
        updated = terms[..., step] + factor * running
        if mask is None:
            sums[..., step] = running = updated
        else:
            running = updated.where(mask[..., step], running)
            sums[..., step] = updated.where(mask[..., step], torch.zeros_like(updated))
    return sums
