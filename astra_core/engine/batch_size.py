"""How many tokens one forward pass may have."""

from collections.abc import Sequence
from typing import Any

import torch

_ON_A_CPU = 16384
# Of a GPU's free memory, what keys, values and logits of one pass may take; the rest is for what
# else a pass needs, for caches that are kept, and for training.
_SHARE = 1 / 4
_MOST = 1 << 18


def tokens_within_memory(models: Sequence[Any], device: torch.device) -> int:
    """Rows times positions of one pass of the largest of the models.

    A power of two, so that it is the same whenever about as much memory is free.
    """
    if device.type != "cuda":
        return _ON_A_CPU
    free, _ = torch.cuda.mem_get_info(device)
    wanted = _SHARE * free / max(map(bytes_per_token, models))
    return max(1024, min(_MOST, 1 << (int(wanted).bit_length() - 1)))


def bytes_per_token(model: Any) -> int:
    """Keys and values of one token in half precision, and the logits of every second one."""
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    groups = getattr(config, "num_key_value_heads", None) or heads
    depth = getattr(config, "head_dim", None) or config.hidden_size // heads
    return int(2 * (2 * config.num_hidden_layers * groups * depth + config.vocab_size // 2))
