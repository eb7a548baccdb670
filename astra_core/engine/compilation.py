"""A model's pass compiled by torch, which merges the small kernels between its products."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch

# Below it, a run rarely gets back the half minute that compiling takes.
_WORTH_IT = 100_000_000
# Shapes of one model: turns of several lengths, and the last batch of an experience.
_MOST_SHAPES = 64

_known: WeakKeyDictionary[Any, Callable[..., Any]] = WeakKeyDictionary()
_scopes = 0


def is_worth_compiling(asked: str, num_parameters: int, device: str) -> bool:
    """What ``auto``, ``on`` or ``off`` means for a model on this type of device."""
    is_large_there = device == "cuda" and num_parameters >= _WORTH_IT
    return asked == "on" or (asked == "auto" and is_large_there)


@contextmanager
def compiled(model: Any) -> Iterator[None]:
    """Runs the body with the passes of a causal LM of transformers compiled, its head's too."""
    global _scopes  # noqa: PLW0603  # a pass has no argument of ours
    body = model.base_model
    if "forward" in vars(body):
        yield
        return
    found = _known.get(body)
    if found is None:
        found = _known[body] = compiled_function(body.forward, fits_all=True)
    body.forward = found
    _scopes += 1
    try:
        yield
    finally:
        _scopes -= 1
        del body.forward


def is_compiling() -> bool:
    """True in the body of ``compiled``."""
    return _scopes > 0


def compiled_function(
    function: Callable[..., Any], *, fits_all: bool = False
) -> Callable[..., Any]:
    """The function compiled, in the same way in every process.

    Args:
        function: Of tensors.
        fits_all: Once for all shapes; else anew for each, which is a little faster.
    """
    torch._dynamo.config.recompile_limit = _MOST_SHAPES  # noqa: SLF001  # its only name
    # Otherwise kernels are chosen by timing them, and a resumed run could round differently.
    torch._inductor.config.deterministic = True  # noqa: SLF001
    made: Callable[..., Any] = torch.compile(function, dynamic=fits_all)
    return made
