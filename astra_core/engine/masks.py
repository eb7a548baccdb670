"""Which tokens see which: one mask for every layer of a model, or one for each kind of layer."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Masks = Float[Tensor, "B 1 Q K"] | dict[str, Float[Tensor, "B 1 Q K"]]


def attention_masks(
    config: Any,
    visible: Bool[Tensor, "B Q K"],
    distances: Int[Tensor, "B Q K"],
    *,
    dtype: torch.dtype = torch.float32,
) -> Masks:
    """What to pass as ``attention_mask``, added to the attention scores.

    Args:
        config: The model's; says which layers look back only so far.
        visible: True where query and key are of one sequence and the key is not after the query.
        distances: Positions from key to query.
        dtype: Of the mask; the attention's own, as it would be cast in every layer otherwise.
    """
    window = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or ())
    if kinds == {"full_attention"} or not window:
        return additive_mask(visible, dtype)
    near = additive_mask(visible & (distances < window), dtype)
    if not kinds:
        return near
    return {"full_attention": additive_mask(visible, dtype), "sliding_attention": near}


def additive_mask(visible: Bool[Tensor, "B Q K"], dtype: torch.dtype) -> Float[Tensor, "B 1 Q K"]:
    """What is added to attention scores so that only what is visible counts."""
    hidden = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return hidden.masked_fill_(~visible, torch.finfo(dtype).min)[:, None]
