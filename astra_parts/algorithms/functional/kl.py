"""KL divergence in the reward, weighted for what an older policy sampled, and its coefficient."""

import math

from jaxtyping import Bool, Float
from torch import Tensor, zeros_like

from astra_core.algorithms.functional.off_policy import importance_ratios
from astra_core.algorithms.functional.shapes import require_positive, require_same_shape
from astra_core.errors import DataError

# Of PPO's paper: times the target, and times the coefficient.
_TOLERANCE, _STEP = 1.5, 2.0


def importance_weighted_kl(
    kl: Float[Tensor, "B T"], log_ratios: Float[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Estimates per token, each times how much likelier its token has become since it was sampled.

    ``r kl`` with ``r = exp(log_ratios)``: under the policy that sampled, its mean is that of the
    estimate under the attacker. The gradient flows through both factors, and with ``k1`` or ``k3``
    its mean is the gradient of the KL divergence too, also off-policy.

    Args:
        kl: From ``kl_estimates``, in nats, with gradient.
        log_ratios: Attacker over the policy that sampled, in nats, held within 20.

    Source: DeepSeek-V3.2, arXiv:2512.02556, section 3.1 (unbiased KL estimate).
    """
    require_same_shape(kl=kl, log_ratios=log_ratios)
    return importance_ratios(log_ratios) * kl


def kl_penalised_rewards(
    rewards: Float[Tensor, "B T"],
    kl: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    coefficient: float,
) -> Float[Tensor, "B T"]:
    """Rewards per token minus ``coefficient`` times the KL of that token; untouched where masked.

    Args:
        rewards: In reward units, usually 0 but at the last token of each probe.
        kl: From ``kl_estimates``, ``k1`` by convention, under the policy that sampled.

    Returns rewards without gradient.

    Source: Ziegler et al., arXiv:1909.08593, eq. 2.
    """
    require_same_shape(rewards=rewards, kl=kl, mask=mask)
    return rewards.detach() - coefficient * kl.detach().where(mask, zeros_like(kl))


def adaptive_coefficient(
    coefficient: float, kl: float, *, target: float, horizon: float, num_samples: int
) -> float:
    """KL coefficient moved in proportion to how far the KL is off its target.

    Args:
        coefficient: The present one, in reward units per nat.
        kl: Measured since the last update, in nats; the same kind (per token or sequence) as
            target.
        target: Wanted KL in nats; positive.
        horizon: Samples over which a KL 20 % or more off would move the coefficient by 20 %.

    Returns the next coefficient; never changes sign while ``num_samples`` is below ``5 * horizon``.

    Raises ConfigurationError if ``target`` or ``horizon`` is not positive.

    Source: Ziegler et al., arXiv:1909.08593, on choosing beta dynamically.
    """
    require_positive("a fixed coefficient needs none", target=target, horizon=horizon)
    _check_finite(kl)
    error = max(-0.2, min(0.2, kl / target - 1))
    return coefficient * (1 + error * num_samples / horizon)


def stepped_coefficient(coefficient: float, kl: float, *, target: float) -> float:
    """KL coefficient doubled or halved when the KL leaves a band around its target.

    The band is ``target / 1.5`` to ``target * 1.5``.

    Args:
        kl: Measured since the last update, in nats.
        target: Middle of the band, in nats; positive.

    Raises ConfigurationError if ``target`` is not positive.

    Source: Schulman et al., arXiv:1707.06347, section 4.
    """
    require_positive("a fixed coefficient needs none", target=target)
    _check_finite(kl)
    if kl > target * _TOLERANCE:
        return coefficient * _STEP
    return coefficient / _STEP if kl < target / _TOLERANCE else coefficient


def _check_finite(kl: float) -> None:
    # Of a NaN min and max take the other argument: the coefficient would rise without a reason.
    if not math.isfinite(kl):
        msg = f"kl must be finite, got {kl}; look for log-probabilities of minus infinity"
        raise DataError(msg)
