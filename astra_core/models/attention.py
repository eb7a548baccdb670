"""The attention of every model here: matrix products for one query, torch's kernel for more.

One query per row is what decoding consists of. torch's fused kernel spends most of that time on
setting up, two products and a softmax do not.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

NAME = "astra"
"""Of this implementation in transformers' table."""


def use_own_attention(model: Any) -> bool:
    """Switches a model over and returns True, or False where it has attention of its own kind."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if model.config._attn_implementation not in {"sdpa", NAME}:  # noqa: SLF001  # its only name
        return False
    ALL_ATTENTION_FUNCTIONS.register(NAME, attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)
    return True


def attention(
    module: torch.nn.Module,
    query: Float[Tensor, "B H Q D"],
    key: Float[Tensor, "B K T D"],
    value: Float[Tensor, "B K T E"],
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Float[Tensor, "B Q H E"], None]:
    """What transformers' ``sdpa_attention_forward`` returns, to rounding."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    is_plain = not any(options.get(name) for name in ("dropout", "softcap", "position_bias"))
    if query.shape[2] != 1 or not is_plain:
        found: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **options
        )
        return found
    return _single_query(query, key, value, attention_mask, scaling), None


def _single_query(
    query: Float[Tensor, "B H 1 D"],
    key: Float[Tensor, "B K T D"],
    value: Float[Tensor, "B K T E"],
    mask: Tensor | None,
    scaling: float | None,
) -> Float[Tensor, "B 1 H E"]:
    rows, heads, _, size = query.shape
    groups = key.shape[1]
    # Heads that share keys become the queries of one product, so no key is repeated.
    grouped = query.reshape(rows, groups, heads // groups, size)
    scale = size**-0.5 if scaling is None else scaling
    scores = (grouped * scale) @ key.transpose(2, 3)
    if mask is not None:
        if mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        else:
            scores = scores + mask
    mixed = scores.softmax(dim=-1).to(value.dtype) @ value
    return mixed.reshape(rows, 1, heads, value.shape[3])
