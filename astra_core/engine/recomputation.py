"""Activations computed again in the backward pass: less memory, more time, equal numbers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def recomputed(model: Any) -> Iterator[None]:
    """Runs the body with the layers' activations recomputed in the backward pass.

    transformers recomputes in training mode only, which would switch dropout on; so the layers
    alone are put into that mode and nothing below them.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    if not model.is_activation_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    for layer in layers:
        layer.training = True
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False
