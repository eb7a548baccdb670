"""Generalised advantages over the tokens of a probe and the turns that follow it."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from astra_core.algorithms.functional.credit import levels
from astra_core.algorithms.functional.shapes import (
    require_alike,
    require_finite,
    require_same_shape,
    require_share,
)
from astra_parts.algorithms.functional.advantages import token_gae


def tree_gae(
    turn_rewards: Float[Tensor, " N"],
    token_rewards: Float[Tensor, "N T"],
    values: Float[Tensor, "N T"],
    mask: Bool[Tensor, "N T"],
    parents: Int[Tensor, " N"],
    *,
    final_values: Float[Tensor, " N"],
    discount: float,
    turn_discount: float,
    decay: float,
) -> tuple[Float[Tensor, "N T"], Float[Tensor, "N T"]]:
    """Advantages of every probe token of a forest of turns, and returns for the value head.

    Time runs through the kept tokens of a probe and on to those of the next turn. The reward of a
    turn is at its last kept token. Where several turns follow, what comes next is their mean.
    Along a single path, with ``turn_discount`` equal to ``discount``, this is ``token_gae`` over
    the whole path.

    Args:
        token_rewards: Of each token besides, such as minus its KL penalty.
        mask: True at the tokens the attacker chose. A turn without any passes on its worth.
        final_values: Predicted after each turn; read where none follows. 0 for a conversation that
            *ended*, the prediction for one that was only *cut* (turn limit, failed reply).

    Returns advantages, and advantages plus values; both 0 where masked, without gradient.

    Raises ConfigurationError if a discount or the decay lies outside [0, 1]; DataError if
    ``parents`` holds an index that does not exist, or a cycle, or the reward of a turn is NaN or
    infinite.

    Source: Schulman et al., arXiv:1506.02438, eq. 16; cut against ended: Pardo et al.,
    arXiv:1712.00378.
    """
    require_alike(1, turn_rewards=turn_rewards, parents=parents, final_values=final_values)
    require_finite(turn_rewards=turn_rewards)
    require_share("1 looks at all turns alike", turn_discount=turn_discount)
    require_alike(2, token_rewards=token_rewards, values=values, mask=mask)
    require_same_shape(turn_rewards=turn_rewards, rows=values.new_empty(len(values)))
    has_token = mask.any(-1)
    first = mask & (mask.cumsum(-1) == 1)
    last = mask & (mask.flip(-1).cumsum(-1).flip(-1) == 1)
    num_children = torch.bincount(parents[parents >= 0], minlength=len(parents))
    future = final_values.detach().where(num_children == 0, torch.zeros_like(final_values))
    advantages, returns = torch.zeros_like(values), torch.zeros_like(values)
    for level in reversed(levels(parents)):
        worth = turn_rewards.detach()[level] + turn_discount * future[level]
        rewards = token_rewards.detach()[level] + last[level] * worth[:, None]
        advantages[level], returns[level] = token_gae(
            rewards, values[level], mask[level], discount=discount, decay=decay
        )
        opening = (values.detach()[level] + decay * advantages[level]).where(
            first[level], torch.zeros_like(values[level])
        )
        worth = opening.sum(-1).where(has_token[level], worth)
        above = parents[level]
        if bool((above >= 0).any()):
            future = future.index_add(0, above, worth / num_children[above])
    return advantages, returns
