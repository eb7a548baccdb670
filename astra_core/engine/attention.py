"""The attention of every model here: matrix products for one query, torch's kernel for more.

Decoding has one query per row. For that, torch's fused kernel spends most of its time on setup; two
products and a softmax do not.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from astra_core.engine.cache.stems import Shared
from astra_core.engine.carrier import load_of
from astra_core.engine.trees.tree_attention import Blocks, by_blocks

NAME = "astra"
"""Of this implementation in transformers' table."""

# Of transformers' options, those that change what attention computes.
_SPECIAL = ("softcap", "position_bias", "s_aux")


def use_own_attention(model: Any) -> bool:
    """Makes a model use this attention; False if the model has a special attention."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if model.config._attn_implementation not in {"sdpa", NAME}:  # noqa: SLF001  # its only name
        return False
    ALL_ATTENTION_FUNCTIONS.register(NAME, attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)
    return True


def attention(  # noqa: PLR0917  # transformers gives them by position
    module: torch.nn.Module,
    query: Float[Tensor, "B H Q D"],
    key: Float[Tensor, "B K T D"],
    value: Float[Tensor, "B K T E"],
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Float[Tensor, "B Q H E"], None]:
    """What transformers' ``sdpa_attention_forward`` returns, to rounding.

    If a cache's rows continue from a stem, the mask covers only what comes after it.

    Raises:
        NotImplementedError: There is a stem, and the model's attention is of a special kind.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    scale = query.shape[3] ** -0.5 if scaling is None else scaling
    is_special = any(options.get(name) is not None for name in _SPECIAL)
    is_plain = not (is_special or options.get("dropout"))
    shared = load_of(key, Shared)
    if shared is not None:
        if not is_plain:
            msg = (
                f"attention over a stem must be plain, got dropout or one of {', '.join(_SPECIAL)}"
            )
            raise NotImplementedError(msg)
        return _attend(query, key, value, mask=attention_mask, scale=scale, shared=shared), None
    if query.shape[2] != 1 or not is_plain:
        shares_heads = is_plain and attention_mask is not None and query.device.type == "cpu"
        grouped = partial(scaled_dot_product_attention, scale=scale, enable_gqa=True)

        def whole(*own: Any) -> Tensor:
            if not shares_heads:
                found: Tensor = sdpa_attention_forward(module, *own, scaling=scaling, **options)[0]
                return found
            # For a mask transformers copies keys and values for every head that shares them.
            return grouped(*own).transpose(1, 2)

        blocks = load_of(attention_mask, Blocks)
        with _repeatable(query, attention_mask):
            if blocks is not None and is_plain:
                return by_blocks(whole, query, key=key, value=value, blocks=blocks), None
            return whole(query, key, value, attention_mask), None
    return _single_query(query, key, value, mask=attention_mask, scale=scale), None


def _repeatable(query: Tensor, mask: Tensor | None) -> AbstractContextManager[None]:
    """A scope of a kernel whose gradient is the same each time, where that is asked for.

    On CUDA the one that takes masks and fp32 and saves memory adds up in any order.
    """
    is_asked = torch.are_deterministic_algorithms_enabled() and query.requires_grad
    device = query.device.type
    is_cast = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if is_cast else query.dtype
    is_flash = mask is None and dtype != torch.float32
    if not is_asked or is_flash or not query.is_cuda:
        return nullcontext()
    scope: AbstractContextManager[None] = sdpa_kernel(SDPBackend.MATH)
    return scope


def _single_query(
    query: Float[Tensor, "B H 1 D"],
    key: Float[Tensor, "B K T D"],
    value: Float[Tensor, "B K T E"],
    *,
    mask: Tensor | None,
    scale: float,
) -> Float[Tensor, "B 1 H E"]:
    rows, heads, _, size = query.shape
    groups = key.shape[1]
    # Heads that share keys become the queries of one product, so no key is repeated.
    grouped = query.reshape(rows, groups, heads // groups, size)
    scores = (grouped * scale) @ key.transpose(2, 3)
    if mask is not None:
        if mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        else:
            scores = scores + mask
    mixed = scores.softmax(dim=-1).to(value.dtype) @ value
    return mixed.reshape(rows, 1, heads, value.shape[3])


def _attend(
    query: Float[Tensor, "B H Q D"],
    key: Float[Tensor, "B K T D"],
    value: Float[Tensor, "B K T E"],
    *,
    mask: Float[Tensor, "B 1 Q T"] | None,
    scale: float,
    shared: Shared,
) -> Float[Tensor, "B Q H E"]:
    """Attention of each row to the prefix it continues, and to its own tokens."""
    rows, heads, count, size = query.shape
    groups = key.shape[1]
    grouped = (query * scale).reshape(rows, groups, heads // groups * count, size)
    own = grouped @ key.transpose(2, 3)
    if mask is not None:
        by_query = own.view(rows, groups, heads // groups, count, key.shape[2])
        own = (by_query + mask[:, :, None]).view(own.shape)
    before = shared.groups.together(grouped) @ shared.keys.transpose(2, 3)
    if shared.mask is not None:
        before = before + shared.mask
    scores = torch.cat([shared.groups.apart(before), own], dim=3).softmax(dim=3).to(value.dtype)
    split = shared.keys.shape[2]
    before = shared.groups.together(scores[..., :split]) @ shared.values
    mixed: Tensor = scores[..., split:] @ value + shared.groups.apart(before)
    return mixed.view(rows, heads, count, value.shape[3]).transpose(1, 2)
