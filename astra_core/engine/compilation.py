"""Layers compiled by torch, which merges the small kernels between their products.

One layer at a time: all layers of a kind share one program, so that compiling takes seconds where
the whole model would take a minute, for each shape.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch

# Shapes of one function: turns of several lengths, and the last batch of an experience.
_MOST_SHAPES = 64


@contextmanager
def compiled(model: Any) -> Iterator[None]:
    """Runs the body with the layers of a causal LM of transformers compiled.

    A pass with a mask, as packed trees have, runs as written: its shape is another each time.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [
        module
        for module in model.base_model.modules()
        if isinstance(module, GradientCheckpointingLayer) and "forward" not in vars(module)
    ]
    for layer in layers:
        layer.forward = partial(_run, layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _run(layer: Any, *args: Any, **kwargs: Any) -> Any:
    has_mask = kwargs.get("attention_mask") is not None
    forward = type(layer).forward if has_mask else _compiled_forward(type(layer))
    return forward(layer, *args, **kwargs)


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
