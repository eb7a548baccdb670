"""The linear layers of a model, however they store their matrix, and other forwards for them.

transformers' ``Conv1D`` is a linear layer whose matrix is stored the other way round. Subclasses of
either are not included: an adapter around a layer does more than multiply.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers.pytorch_utils import Conv1D


def linear_layers(model: Any) -> list[Any]:
    """The layers of a model that multiply by a matrix and do nothing else."""
    return [layer for layer in model.modules() if type(layer) in {torch.nn.Linear, Conv1D}]


def matrix_of(layer: Any) -> Float[Tensor, "I O"]:
    """What a layer multiplies its rows by; a view of its weights."""
    matrix: Tensor = layer.weight if type(layer) is Conv1D else layer.weight.t()
    return matrix


@contextmanager
def replaced_forwards(forwards: Mapping[Any, Callable[[Tensor], Tensor]]) -> Iterator[None]:
    """Runs the body with other forward passes for these layers, then restores their own."""
    before = {layer: vars(layer).get("forward") for layer in forwards}
    for layer, forward in forwards.items():
        layer.forward = forward
    try:
        yield
    finally:
        for layer, own in before.items():
            del layer.forward
            if own is not None:
                layer.forward = own
