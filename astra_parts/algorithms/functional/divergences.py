"""DPO under other divergences from the reference than the reverse KL.

The reward that a policy is optimal for under a divergence ``f`` is ``beta f'(p / q)`` up to a
constant, with ``p`` the attacker and ``q`` the reference. So a loss of the margin needs only other
scores in place of the log-ratios.
"""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from astra_core.algorithms.functional.preference import Divergence
from astra_core.algorithms.functional.shapes import require_rank
from astra_core.errors import ConfigurationError

MAX_EXPONENT = 20.0
"""Nats by which a sequence may fall behind inside an exponential; exp(20) = 4.9e8."""


def divergence_scores(
    log_ratios: Float[Tensor, " N"], *, divergence: Divergence, alpha: float = 0.5
) -> Float[Tensor, " N"]:
    """``f'`` of the ratio of each sequence, without the constant that cancels in a margin.

    With ``c = log p - log q``: ``c`` (reverse KL), ``1 - exp(-c)`` (forward KL), ``log 2 +
    log sigmoid(c)`` (Jensen-Shannon) and ``(1 - exp(-alpha c)) / alpha``. All have value 0 and rise
    at ``c = 0``. In an exponential ``c`` is held at -20 nats from below, but for its gradient, so
    that a probe far off is still pulled back.

    Args:
        log_ratios: Attacker over reference, in nats, one per sequence.
        alpha: Of ``alpha`` alone, in (0, 1).

    Returns scores, to be used as log-ratios.

    Raises ConfigurationError for an unknown divergence, or ``alpha`` outside (0, 1).

    Source: Wang et al., f-DPO, arXiv:2309.16240, table 2.
    """
    require_rank(1, log_ratios=log_ratios)
    if divergence not in ("reverse_kl", "forward_kl", "jensen_shannon", "alpha"):
        msg = f"divergence must be a name of Divergence, got {divergence!r}; reverse_kl is usual"
        raise ConfigurationError(msg)
    if not 0 < alpha < 1:
        msg = f"alpha must lie in (0, 1), got {alpha}; 0 is reverse_kl and 1 forward_kl"
        raise ConfigurationError(msg)
    if divergence == "reverse_kl":
        return log_ratios
    if divergence == "jensen_shannon":
        return logsigmoid(log_ratios) - logsigmoid(log_ratios.new_zeros(()))
    if divergence == "forward_kl":
        return -(-_limit_value(log_ratios)).expm1()
    return -(-alpha * _limit_value(log_ratios)).expm1() / alpha


def _limit_value(log_ratios: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """The same above the limit, with the gradient of the unlimited ones."""
    value = log_ratios.detach()
    return log_ratios - value + value.clamp(min=-MAX_EXPONENT)
