"""Layers compiled by torch, which merges the small kernels between their products.

One layer at a time: all layers of a kind share one program, so that compiling takes seconds where
the whole model would take a minute, for each shape.
"""

import os
import shutil
import sysconfig
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from weakref import WeakSet

import torch
from torch import Tensor
from transformers.cache_utils import Cache

# Weights from which on a few hundred compiled updates save more time than compiling takes: 10 s for
# each shape on an H200, where an update of 0.5 billion weights is 30 ms quicker.
# The length of a run does not count, so that a run that is prolonged goes on in the same way.
_WORTH_IT = 300_000_000
# Shapes of one function: turns of several lengths, the last batch of an experience, and steps.
_MOST_SHAPES = 256

_active: WeakSet[Any] = WeakSet()


def has_compiler() -> bool:
    """True where torch can compile for a GPU: triton comes with torch for CUDA, and calls C's."""
    names = [os.environ["CC"]] if "CC" in os.environ else ["gcc", "clang"]
    has_headers = Path(sysconfig.get_path("include"), "Python.h").is_file()
    return find_spec("triton") is not None and has_headers and any(map(shutil.which, names))


def compiles(asked: Literal["auto"] | bool, device: str, *, num_weights: int) -> bool:
    """Whether updates are compiled: on a GPU where that saves time, if nothing else is asked for.

    ``asked`` is ``training.compile``, ``device`` the type of the model's device.
    """
    if asked != "auto":
        return asked
    return device == "cuda" and num_weights >= _WORTH_IT and has_compiler()


def is_compiled(model: Any) -> bool:
    """True inside ``compile_layers`` of this model: its passes should have one of few shapes."""
    return model.base_model in _active


@contextmanager
def compile_layers(model: Any) -> Iterator[None]:
    """Runs the body with the layers of a causal LM of transformers compiled.

    A pass with a mask, as packed trees have, runs as written: its shape is another each time.
    """
    with warnings.catch_warnings(), _replace_passes(model, lambda _, layer: partial(_learn, layer)):
        # torch looks at every tensor that it is given, also where there is no gradient to find.
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor")
        _active.add(model.base_model)
        try:
            yield
        finally:
            _active.discard(model.base_model)


@contextmanager
def compiled_step(model: Any, cache: Cache) -> Iterator[None]:
    """The same for a pass of one token for each row, which reads and writes this cache.

    Each layer is given its own part of the cache, since a program that looks its number up would
    be another for every layer.
    """
    parts = [OwnLayer(layers=[layer]) for layer in cache.layers]
    if len(_layers_of(model)) != len(parts):
        # Which layer has which part of the cache is not to be seen.
        yield
        return
    with _replace_passes(model, lambda number, layer: partial(_step, layer, cache, parts[number])):
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
def _replace_passes(
    model: Any, forward: Callable[[int, Any], Callable[..., Any]]
) -> Iterator[None]:
    """Runs the body with another pass for each layer, which is given with its number."""
    layers = [layer for layer in _layers_of(model) if "forward" not in vars(layer)]
    for number, layer in enumerate(layers):
        layer.forward = forward(number, layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _layers_of(model: Any) -> list[Any]:
    from transformers.modeling_layers import GradientCheckpointingLayer

    modules = model.base_model.modules()
    return [module for module in modules if isinstance(module, GradientCheckpointingLayer)]


def _learn(layer: Any, *args: Any, **kwargs: Any) -> Any:
    has_mask = kwargs.get("attention_mask") is not None
    kind: Any = type(layer)
    forward = kind.forward if has_mask else _compiled_forward(kind)
    return forward(layer, *args, **kwargs)


def _step(layer: Any, cache: Cache, part: Cache, *args: Any, **kwargs: Any) -> Any:
    own = {name: part if value is cache else value for name, value in kwargs.items()}
    kind: Any = type(layer)
    return _compiled_forward(kind)(layer, *args, **own)


@cache
def _compiled_forward(kind: Any) -> Callable[..., Any]:
    return compiled_function(kind.forward)


def compiled_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of tensors compiled for each shape, in the same way in every process."""
    torch._dynamo.config.recompile_limit = _MOST_SHAPES  # noqa: SLF001  # its only name
    # Otherwise kernels are chosen by timing them, and a resumed run could round differently.
    torch._inductor.config.deterministic = True  # noqa: SLF001
    # Shapes left open would take their program from the shape that happens to come first.
    made: Callable[..., Any] = torch.compile(function, dynamic=False)
    return made
