"""A model's copy in half precision, which talks in its place: all of a pass is in that type.

On a GPU this halves what a step reads; casts around single layers would cost more than they save.
"""

import copy
from typing import Any

import torch

from astra_core.engine.abilities import abilities_of, assume
from astra_core.models.lora import merged_state


class TalkingCopy:
    """The copy; adapters are merged into its weights.

    Attributes:
        model: What talks.
    """

    def __init__(self, model: Any, dtype: torch.dtype = torch.bfloat16) -> None:
        self._source = model
        found = abilities_of(model)
        self.model = _without_adapters(copy.deepcopy(model)).requires_grad_(requires_grad=False)
        # Not the buffers: rotary frequencies in bf16 would place distant tokens wrongly.
        for weight in self.model.parameters():
            weight.data = weight.data.to(dtype)
        assume(self.model, found)
        self._is_fresh = False
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Takes over the weights as they are now; their addresses stay."""
        if self._is_fresh and not any(w.requires_grad for w in self._source.parameters()):
            return
        state = merged_state(self._source) or dict(self._source.named_parameters())
        for name, weight in self.model.named_parameters():
            weight.copy_(state[name])
        self._is_fresh = True


def _without_adapters(model: Any) -> Any:
    """The model with each layer of peft replaced by the layer that it wraps."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if hasattr(child, "base_layer"):
                setattr(module, name, child.base_layer)
    return model
