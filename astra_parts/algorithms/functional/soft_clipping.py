"""A surrogate without a hard clip: a gate that closes smoothly as the ratio leaves 1."""

import torch
from jaxtyping import Float
from torch import Tensor

from astra_core.algorithms.functional.off_policy import importance_ratios
from astra_core.algorithms.functional.shapes import require_positive
from astra_parts.algorithms.functional.aggregation import require_column_or_same


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
