"""Layers compiled by torch, which merges the small kernels between their products.

One layer at a time: all layers of a kind share one program, so that compiling takes seconds where
the whole model would take a minute, for each shape.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

# Shapes of one function: turns of several lengths, and the last batch of an experience.
_MOST_SHAPES = 64


@contextmanager
def compiled(model: Any) -> Iterator[None]:
    """Runs the body with the layers of a causal LM of transformers compiled.

    A pass with a mask, as packed trees have, runs as written: its shape is another each time.
    """
    with _replaced(model, lambda _, layer: partial(_learn, layer)):
        yield


@contextmanager
def compiled_step(model: Any, cache: Cache) -> Iterator[None]:
    """The same for a pass of one token for each row, which reads and writes this cache.

    Each layer is given its own part of the cache, since a program that looks its number up would
    be another for every layer.
    """
    parts = [OwnLayer(layers=[layer]) for layer in cache.layers]
    with _replaced(model, lambda number, layer: partial(_step, layer, cache, parts[number])):
        yield


class OwnLayer(Cache):  # type: ignore[misc]
    """A cache of one layer, whatever number that is asked for."""

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Writes into the layer; see transformers' Cache."""
        del layer_idx
        found: tuple[Tensor, Tensor] = self.layers[0].update(
            key_states, value_states, *args, **kwargs
        )
        return found

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens in the layer, as it tells them."""
        del layer_idx
        return int(self.layers[0].get_seq_length())


@contextmanager
def _replaced(model: Any, forward: Callable[[int, Any], Callable[..., Any]]) -> Iterator[None]:
    """Runs the body with another pass for each layer, which is given with its number."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [
        module
        for module in model.base_model.modules()
        if isinstance(module, GradientCheckpointingLayer) and "forward" not in vars(module)
    ]
    for number, layer in enumerate(layers):
        layer.forward = forward(number, layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _learn(layer: Any, *args: Any, **kwargs: Any) -> Any:
    has_mask = kwargs.get("attention_mask") is not None
    forward = type(layer).forward if has_mask else _compiled_forward(type(layer))
    return forward(layer, *args, **kwargs)


def _step(layer: Any, cache: Cache, part: Cache, *args: Any, **kwargs: Any) -> Any:
    own = {name: part if value is cache else value for name, value in kwargs.items()}
    return _compiled_forward(type(layer))(layer, *args, **own)


@cache
def _compiled_forward(kind: type) -> Callable[..., Any]:
    return compiled_function(kind.forward)  # type: ignore[attr-defined]


def compiled_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of tensors compiled for each shape, in the same way in every process."""
    torch._dynamo.config.recompile_limit = _MOST_SHAPES  # noqa: SLF001  # its only name
    # Otherwise kernels are chosen by timing them, and a resumed run could round differently.
    torch._inductor.config.deterministic = True  # noqa: SLF001
    # Shapes left open would take their program from the shape that happens to come first.
    made: Callable[..., Any] = torch.compile(function, dynamic=False)
    return made
