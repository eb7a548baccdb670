"""From one loss per token to one number that does not depend on how micro-batches are cut.

A mean of means depends on how the sequences are distributed. So a batch yields a *total* and a
*weight*: totals and weights are added over all micro-batches of an optimiser step and divided
once. The weight depends on masks alone, so a trainer can sum it before the first backward pass
and scale each total:

    weight = sum(aggregation_weight(batch.mask, mode=mode, max_length=64) for batch in window)
    for batch in window:
        (aggregate(losses(batch), batch.mask, mode=mode) / weight).backward()
"""

from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from astra_core.algorithms.functional.masking import masked_sum
from astra_core.algorithms.functional.shapes import require_rank
from astra_core.errors import ConfigurationError, ShapeError

Aggregation = Literal["token_mean", "sequence_mean", "sequence_sum", "constant_length"]
"""How tokens are counted. ``token_mean``: all tokens of the window alike (DAPO), so long probes
weigh more. ``sequence_mean``: the mean within each sequence, then over sequences (GRPO), so a token
of a long probe weighs less. ``sequence_sum``: the sum within each, then the mean over sequences
(the plain policy gradient). ``constant_length``: that, divided by a fixed length (Dr. GRPO,
arXiv:2503.20783)."""


def aggregate(
    values: Float[Tensor, "B #T"], mask: Bool[Tensor, "B T"], *, mode: Aggregation
) -> Float[Tensor, ""]:
    """Per-token losses, or any per-token metric, summed as the mode counts tokens.

    Args:
        values: Per token, or one column that stands for every token of its sequence. Whatever
            stands at masked positions is ignored, be it nan.
        mask: True at the tokens that count. A row without any is left out everywhere, also from the
            number of sequences.

    Raises ConfigurationError for an unknown mode.
    """
    require_column_or_same(mask=mask, values=values)
    # Sums of half-precision losses are kept in float32, of float64 ones in float64.
    wide = torch.promote_types(values.dtype, torch.float32)
    weights = aggregation_weights(mask, mode=mode, dtype=wide)
    return masked_sum(values.expand_as(mask) * weights, mask)


def aggregation_weights(
    mask: Bool[Tensor, "B T"], *, mode: Aggregation, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "B T"]:
    """What each token's loss is multiplied by before the sum, in ``dtype``; 0 where masked.

    Raises ConfigurationError for an unknown mode.
    """
    require_rank(2, mask=mask)
    _check_mode(mode)
    ones = mask.to(dtype)
    return ones / ones.sum(-1, keepdim=True).clamp(min=1) if mode == "sequence_mean" else ones


def aggregation_weight(
    mask: Bool[Tensor, "B T"], *, mode: Aggregation, max_length: int
) -> Float[Tensor, ""]:
    """What the sum is divided by: a number of tokens or of sequences, additive over micro-batches.

    ``max_length``: tokens a probe may have at most, which ``constant_length`` reads.

    Raises ConfigurationError for an unknown mode.
    """
    require_rank(2, mask=mask)
    _check_mode(mode)
    if mode == "token_mean":
        return mask.sum().float()
    num_sequences = mask.any(-1).sum()
    return (num_sequences * max_length if mode == "constant_length" else num_sequences).float()


def _check_mode(mode: str) -> None:
    if mode not in get_args(Aggregation):
        known = list(get_args(Aggregation))
        msg = f"aggregation must be one of {known}, got {mode!r}; see Aggregation"
        raise ConfigurationError(msg)


def require_column_or_same(**tensors: Tensor) -> None:
    """Checks that all are ``[B, T]`` with equal B, and each T is either 1 or the common length.

    A vector ``[B]`` is rejected although torch would accept it: against ``[B, T]`` it broadcasts
    along tokens, which is silently wrong whenever B equals T.
    """
    require_rank(2, **tensors)
    (first, model), *rest = tensors.items()
    for name, tensor in rest:
        lengths = {model.shape[1], tensor.shape[1]} - {1}
        if tensor.shape[0] != model.shape[0] or len(lengths) > 1:
            msg = (
                f"{name} must fit {first} with shape {tuple(model.shape)}, "
                f"got {tuple(tensor.shape)}; give one row per sequence and 1 or T columns"
            )
            raise ShapeError(msg)
