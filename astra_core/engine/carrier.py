"""Passes data through transformers: a load on a tensor, from our code to our attention.

A model gives its attention the same mask object that it was called with and the same keys that its
cache returned, but no further arguments of ours. So a load is attached to such a tensor and read
from it in ``attention``. There are two kinds: ``Shared`` on keys (``engine.cache.stems``) and
``Blocks`` on a mask (``engine.trees.tree_attention``).

A model that copies the tensor on its way loses the load. Without blocks only time is lost; a stem
would be missing from the result, which is why the trial of ``Abilities.takes_stems`` compares
numbers before a stem is relied on. A tensor has at most one load, and its views do not have it.
"""

from typing import TypeVar

from torch import Tensor

_ATTRIBUTE = "astra_load"

Load = TypeVar("Load")


def with_load(tensor: Tensor, load: object) -> Tensor:
    """The tensor itself, now with this load instead of any earlier one."""
    setattr(tensor, _ATTRIBUTE, load)
    return tensor


def load_of(tensor: Tensor | None, kind: type[Load]) -> Load | None:
    """The load of this kind that the tensor has; None without one, or without a tensor."""
    load = getattr(tensor, _ATTRIBUTE, None)
    return load if isinstance(load, kind) else None
