"""Distance between attacker and reference, estimated on the attacker's own tokens.

All estimators see only ``log attacker - log reference`` at the sampled token, in nats. ``k1``
belongs in the reward. As a *loss* its gradient says nothing about the reference: its expectation
is that of ``grad log p``, zero. ``k2`` has the right gradient on-policy, ``k3`` the lower
variance in its value (Tang and Munos, arXiv:2506.09477).
"""

from collections.abc import Callable
from typing import Final, Literal

from jaxtyping import Float
from torch import Tensor

from astra_core.algorithms.functional.shapes import require_same_shape
from astra_core.errors import ConfigurationError

KLEstimator = Literal["k1", "k2", "k3", "abs", "mse"]
"""``mse`` is another name of ``k2``, the one NexRL's users know; ``abs`` estimates no KL."""

MAX_LOG_RATIO = 5.0
"""Nats a log-ratio may reach inside ``k3``; exp(5) = 148."""

MAX_K3 = 10.0
"""Nats; one token may cost at most this much, as in NexRL, verl and OpenRLHF."""


def kl_estimates(
    logprobs: Float[Tensor, "*shape"],
    reference_logprobs: Float[Tensor, "*shape"],
    *,
    estimator: KLEstimator,
) -> Float[Tensor, "*shape"]:
    """Estimate of the KL divergence attacker || reference, per token.

    ``k1 = d``, ``k2 = mse = d^2 / 2``, ``abs = |d|``, ``k3 = exp(-d) + d - 1`` with ``d = log
    attacker - log reference``. In ``k3`` ``d`` is held within 5 nats and the value below 10, or
    one token in a million overflows the loss. The gradient passes these limits (it is ``1 -
    exp(-d)`` with ``d`` held within 5 nats), so an outlying token still gets a gradient.

    ``reference_logprobs``: of the reference, in nats; its gradient is cut.

    Raises ConfigurationError for an unknown estimator.

    Source: Schulman, http://joschu.net/blog/kl-approx.html; limits as in NexRL 1.4.0.
    """
    if estimator not in _ESTIMATORS:
        msg = f"KL estimator must be one of {list(_ESTIMATORS)}, got {estimator!r}; k3 is usual"
        raise ConfigurationError(msg)
    require_same_shape(logprobs=logprobs, reference_logprobs=reference_logprobs)
    return _ESTIMATORS[estimator](logprobs - reference_logprobs.detach())


def _k1(log_ratios: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    return log_ratios


def _k2(log_ratios: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    return 0.5 * log_ratios.square()


def _k3(log_ratios: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    held = _clamp_value(-log_ratios, -MAX_LOG_RATIO, MAX_LOG_RATIO)
    # expm1, not exp - 1: near the reference a difference of numbers close to 1 is all rounding.
    return _clamp_value(held.expm1() - held, -MAX_K3, MAX_K3)


def _clamp_value(
    values: Float[Tensor, "*shape"], low: float, high: float
) -> Float[Tensor, "*shape"]:
    """The clamped value with the gradient of the unclamped one (straight through)."""
    return (values - values.detach()) + values.detach().clamp(low, high)


_ESTIMATORS: Final[dict[str, Callable[[Float[Tensor, "*shape"]], Tensor]]] = {
    "k1": _k1,
    "k2": _k2,
    "k3": _k3,
    "abs": Tensor.abs,
    "mse": _k2,
}
