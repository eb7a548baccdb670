"""Surrogates whose gradient is a policy gradient, one loss per token, to be minimised.

Each takes log-ratios ``log attacker - log sampling policy`` rather than two sets of
log-probabilities. So token-level and sequence-level importance weights are one function: pass
``logprobs - old_logprobs`` for the first, and ``sequence_log_ratios(...,
length_normalised=True)[:, None]`` for the second. Advantages, per token or one column for the whole
sequence, never carry a gradient. ``aggregation`` reduces the tokens.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from astra_core.algorithms.functional.off_policy import importance_ratios
from astra_core.algorithms.functional.shapes import require_positive, require_same_shape
from astra_core.errors import ConfigurationError
from astra_parts.algorithms.functional.aggregation import require_column_or_same


def reinforce_surrogate(
    logprobs: Float[Tensor, "B T"], advantages: Float[Tensor, "B #T"]
) -> Float[Tensor, "B T"]:
    """``-A log p`` per token; right only while the attacker is still the policy that sampled.

    Source: Williams, Machine Learning 8 (1992), 229-256.
    """
    require_column_or_same(logprobs=logprobs, advantages=advantages)
    return -advantages.detach() * logprobs


def clipped_surrogate(
    log_ratios: Float[Tensor, "B #T"],
    advantages: Float[Tensor, "B #T"],
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> Float[Tensor, "B #T"]:
    """PPO objective, negated: ``-min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)``.

    Args:
        clip_high: How far it may rise for a good one; above ``clip_low`` in DAPO ("clip higher").
        dual_clip: Bounds the objective of a bad token from below by ``dual_clip * A``, for ratios
            that are far off; above 1, or None for the plain objective.

    Source: Schulman et al., arXiv:1707.06347, eq. 7; asymmetric: DAPO, arXiv:2503.14476, section
    3.1; dual: Ye et al., arXiv:1912.09729, eq. 5; per sequence: GSPO, arXiv:2507.18071, eq. 5.
    """
    _check_clips(clip_low, clip_high, dual_clip)
    require_column_or_same(log_ratios=log_ratios, advantages=advantages)
    gain = advantages.detach()
    ratios = importance_ratios(log_ratios)
    objective = torch.minimum(ratios * gain, ratios.clamp(1 - clip_low, 1 + clip_high) * gain)
    if dual_clip is not None:
        objective = torch.where(gain < 0, torch.maximum(objective, dual_clip * gain), objective)
    return -objective


def is_clipped(
    log_ratios: Float[Tensor, "B #T"],
    advantages: Float[Tensor, "B #T"],
    *,
    clip_low: float,
    clip_high: float,
) -> Bool[Tensor, "B #T"]:
    """True where ``clipped_surrogate`` holds the token back and passes no gradient."""
    _check_clips(clip_low, clip_high, None)
    require_column_or_same(log_ratios=log_ratios, advantages=advantages)
    ratios = importance_ratios(log_ratios.detach())
    rose_too_far = (advantages > 0) & (ratios > 1 + clip_high)
    fell_too_far = (advantages < 0) & (ratios < 1 - clip_low)
    return rose_too_far | fell_too_far


def is_dual_clipped(
    log_ratios: Float[Tensor, "B #T"], advantages: Float[Tensor, "B #T"], *, dual_clip: float
) -> Bool[Tensor, "B #T"]:
    """True for a bad token whose objective the dual clip bounds, so that it has no gradient either.

    Raises ConfigurationError if ``dual_clip`` is not above 1.
    """
    _check_dual_clip(dual_clip)
    require_column_or_same(log_ratios=log_ratios, advantages=advantages)
    return (advantages < 0) & (importance_ratios(log_ratios.detach()) > dual_clip)


def importance_sampling_surrogate(
    log_ratios: Float[Tensor, "B #T"], advantages: Float[Tensor, "B #T"]
) -> Float[Tensor, "B #T"]:
    """``-r A``: unbiased off-policy, with a variance that grows with the age of the samples.

    Source: Schulman et al., arXiv:1707.06347, eq. 6 (conservative policy iteration).
    """
    require_column_or_same(log_ratios=log_ratios, advantages=advantages)
    return -importance_ratios(log_ratios) * advantages.detach()


def truncated_surrogate(
    logprobs: Float[Tensor, "B T"],
    log_ratios: Float[Tensor, "B #T"],
    advantages: Float[Tensor, "B #T"],
    *,
    max_ratio: float,
) -> Float[Tensor, "B T"]:
    """REINFORCE weighted by the capped importance ratio: ``-stop(min(r, max_ratio)) A log p``.

    Unlike in ``clipped_surrogate`` every token keeps some gradient, even beyond the cap.

    Args:
        logprobs: Of the attacker, in nats; only these carry the gradient.
        max_ratio: Largest weight, absolute and not a distance from 1; positive.

    Raises ConfigurationError if ``max_ratio`` is not positive.

    Source: CISPO, arXiv:2506.13585, section 3.1.
    """
    require_positive("5.0 is a usual cap", max_ratio=max_ratio)
    require_column_or_same(logprobs=logprobs, log_ratios=log_ratios, advantages=advantages)
    weights = importance_ratios(log_ratios.detach()).clamp(max=max_ratio)
    return -weights * advantages.detach() * logprobs


def soft_surrogate(
    log_ratios: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B #T"],
    *,
    temperature_good: float,
    temperature_bad: float,
) -> Float[Tensor, "B T"]:
    """``-(4 / t) sigmoid(t (r - 1)) A``: at ``r = 1`` the policy gradient, further off less of it.

    The gradient's weight is ``4 s (1 - s)`` times the ratio with ``s = sigmoid(t (r - 1))``: 1 at
    ``r = 1``, and never exactly 0 as beyond a clip.

    Args:
        temperature_good: ``t`` where the advantage is positive; a larger one closes sooner.
        temperature_bad: ``t`` elsewhere; larger, since raising all other tokens is less stable.

    Raises ConfigurationError if a temperature is not positive.

    Source: Gao et al., SAPO, arXiv:2511.20347, eq. 5 and 6.
    """
    positive = {"temperature_good": temperature_good, "temperature_bad": temperature_bad}
    require_positive("1.0 and 1.05 are the paper's", **positive)
    require_column_or_same(log_ratios=log_ratios, advantages=advantages)
    gain = advantages.detach()
    good, bad = (gain.new_tensor(value) for value in (temperature_good, temperature_bad))
    temperature = torch.where(gain > 0, good, bad)
    gate = (temperature * (importance_ratios(log_ratios) - 1)).sigmoid()
    return -4 / temperature * gate * gain


def value_losses(
    values: Float[Tensor, "B T"],
    old_values: Float[Tensor, "B T"],
    returns: Float[Tensor, "B T"],
    *,
    clip: float | None = None,
) -> Float[Tensor, "B T"]:
    """Half the squared error of the value head, the worse of plain and clipped prediction.

    Args:
        values: Predicted now; the gradient flows through these.
        clip: How far a prediction may move from the old one before it stops being rewarded for it,
            in reward units; None for the plain squared error.

    Raises ConfigurationError if ``clip`` is not positive.

    Source: Schulman et al., arXiv:1707.06347, eq. 9; the clip: Engstrom et al., arXiv:2005.12729,
    section 3.
    """
    require_same_shape(values=values, old_values=old_values, returns=returns)
    errors = (values - returns.detach()).square()
    if clip is None:
        return 0.5 * errors
    require_positive("None turns clipping off", clip=clip)
    anchor = old_values.detach()
    clipped = anchor + (values - anchor).clamp(-clip, clip)
    return 0.5 * torch.maximum(errors, (clipped - returns.detach()).square())


def _check_clips(clip_low: float, clip_high: float, dual_clip: float | None) -> None:
    if not 0 < clip_low < 1:
        msg = f"clip_low must lie in (0, 1), got {clip_low}; 0.2 is usual"
        raise ConfigurationError(msg)
    require_positive("0.2 is usual", clip_high=clip_high)
    _check_dual_clip(dual_clip)


def _check_dual_clip(dual_clip: float | None) -> None:
    if dual_clip is not None and not dual_clip > 1:
        msg = f"dual_clip must be above 1, got {dual_clip}; 3.0 is usual, None turns it off"
        raise ConfigurationError(msg)
