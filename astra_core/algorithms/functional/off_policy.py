"""Weights for what an older policy sampled, so that its gradient is nearly that of the newer one.

The ratio of a truncated importance weight is that of the policy as an update begins (proximal) to
the one that sampled (behaviour); how far the update then moves is bounded against the proximal
policy. That is decoupled PPO (Hilton, Cobbe and Schulman, arXiv:2110.00641), as AReaL uses it for
asynchronous training (arXiv:2505.24298).
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from astra_core.algorithms.functional.masking import masked_mean, masked_sum
from astra_core.algorithms.functional.shapes import require_positive, require_same_shape
from astra_core.errors import ConfigurationError

MAX_LOG_RATIO = 20.0
"""Nats; exp(20) = 4.9e8 is finite in every float type we use. The limit of verl and OpenRLHF."""


def off_policy_weights(
    log_ratios: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    level: Literal["token", "sequence"],
    cap: float,
) -> Float[Tensor, "B #T"]:
    """Importance weights of tokens or of whole sequences, none above ``cap``.

    Args:
        mask: True at the tokens that are trained; others have weight 1, or count in no sequence.
        cap: Bounds the variance, at the cost of a bias towards the policy that sampled.

    Raises ConfigurationError if ``cap`` is not positive.

    Source: Truncation: Ionides, Journal of Computational and Graphical Statistics 17 (2008),
    295-311. Caps of 2 per token and 5 per sequence are SkyRL's.
    """
    require_same_shape(log_ratios=log_ratios, mask=mask)
    require_positive("2 is usual of tokens, 5 of sequences", cap=cap)
    if level == "token":
        return torch.where(mask, importance_ratios(log_ratios).clamp(max=cap), 1.0)
    return importance_ratios(masked_sum(log_ratios, mask, dim=-1)).clamp(max=cap)[:, None]


def is_near_policy(
    log_ratios: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, cap: float
) -> Bool[Tensor, " B"]:
    """Whether the geometric mean of a sequence's ratios lies within ``1 / cap`` and ``cap``.

    ``cap``: above 1.

    Raises ConfigurationError if ``cap`` is not above 1.

    Source: SkyRL's geometric sequence mask, whose band is 0.99 to 1.01.
    """
    require_same_shape(log_ratios=log_ratios, mask=mask)
    if not cap > 1.0:
        msg = f"cap must be above 1, got {cap}; 1.01 is usual"
        raise ConfigurationError(msg)
    mean = masked_mean(log_ratios, mask, dim=-1)
    return mean.abs() <= torch.log(torch.tensor(cap, dtype=mean.dtype))


def importance_ratios(log_ratios: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """``exp`` of the log-ratios, which are held within 20 nats so that none overflows."""
    return log_ratios.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
