"""The one way past transformers: what rides on a tensor from our code to our attention.

A model hands to its attention the very mask that it was called with and the very keys that its
cache gave it, and takes no further arguments of ours in between. So a load is put on such a tensor
and taken off it in ``attention``. Two kinds ride: ``Shared`` on keys (``engine.cache.stems``) and
``Blocks`` on a mask (``engine.trees.tree_attention``).

A model that copies the tensor on its way loses the load. Of blocks only time is lost then; a stem
would be left out of the answer, which is why the trial of ``Abilities.takes_stems`` compares
numbers before a stem is relied on. There is one load to a tensor, and views do not have it.
"""

from typing import TypeVar

from torch import Tensor

_ATTRIBUTE = "astra_load"

Load = TypeVar("Load")


def laden(tensor: Tensor, load: object) -> Tensor:
    """The tensor itself, now with the load in the place of any before."""
    setattr(tensor, _ATTRIBUTE, load)
    return tensor


def load_of(tensor: Tensor | None, kind: type[Load]) -> Load | None:
    """The load of this kind that the tensor has; None without one, or without a tensor."""
    load = getattr(tensor, _ATTRIBUTE, None)
    return load if isinstance(load, kind) else None
