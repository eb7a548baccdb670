"""A model's pass compiled by torch, which merges the small kernels between its products."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch

# Shapes of one function: turns of several lengths, and the last batch of an experience.
_MOST_SHAPES = 64

_known: WeakKeyDictionary[Any, Callable[..., Any]] = WeakKeyDictionary()


@contextmanager
def compiled(model: Any) -> Iterator[None]:
    """Runs the body with the passes of a causal LM of transformers, up to its head, compiled."""
    body = model.base_model
    if "forward" in vars(body):
        yield
        return
    found = _known.get(body)
    if found is None:
        found = _known[body] = compiled_function(body.forward, is_static=False)
    body.forward = found
    try:
        yield
    finally:
        del body.forward


def compiled_function(function: Callable[..., Any], *, is_static: bool) -> Callable[..., Any]:
    """The function compiled, in the same way in every process.

    Args:
        function: Of tensors.
        is_static: Anew for each shape; else a second shape makes it fit all.
    """
    torch._dynamo.config.recompile_limit = _MOST_SHAPES  # noqa: SLF001  # its only name
    # Otherwise kernels are chosen by timing them, and a resumed run could round differently.
    torch._inductor.config.deterministic = True  # noqa: SLF001
    made: Callable[..., Any] = torch.compile(function, dynamic=False if is_static else None)
    return made
