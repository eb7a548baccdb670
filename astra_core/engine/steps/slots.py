"""Keys and values at addresses that stay the same, so that a captured step can be replayed."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from astra_core.engine.cache.key_values import KeyValues


class Arena:
    """Memory for the keys and values of one model; caches of all shapes lie in it by turns.

    Attributes:
        num_slots: Rows times slots that it has room for.
    """

    def __init__(self, like: KeyValues, num_slots: int) -> None:
        self.num_slots = num_slots
        # Zeros: a slot that nothing was written to is hidden by a mask, and zero times NaN is NaN.
        self._flat = [
            {
                name: states.new_zeros(states.shape[1] * num_slots, states.shape[3])
                for name, states in (("keys", layer.keys), ("values", layer.values))
            }
            for layer in like.layers
        ]

    def cache(self, num_rows: int, capacity: int) -> "SlotCache":
        """A cache at the beginning of the memory, which others overwrite."""

        def begin(flat: Float[Tensor, "KS D"]) -> Float[Tensor, "R K C D"]:
            heads = len(flat) // self.num_slots
            own = flat[: num_rows * heads * capacity]
            return own.view(num_rows, heads, capacity, flat.shape[1])

        return SlotCache(
            [{name: begin(flat) for name, flat in layer.items()} for layer in self._flat]
        )


class SlotCache(Cache):  # type: ignore[misc]
    """A transformers cache in which every row writes one token per pass into a slot of its own."""

    def __init__(self, buffers: Sequence[dict[str, Tensor]]) -> None:
        self._aim = _Aim(buffers)
        super().__init__(
            layers=[_SlotLayer(own["keys"], own["values"], aim=self._aim) for own in buffers]
        )
        self.num_rows, _, self.capacity, _ = buffers[0]["keys"].shape

    def aim(self, slots: Int[Tensor, " R"]) -> None:
        """Says where the next pass writes."""
        self._aim.at(slots)

    def load(self, places: Int[Tensor, " N"], values: KeyValues, rows: Int[Tensor, " N"]) -> None:
        """Copies rows of another cache into these places; they are no longer than a row here."""
        width = min(values.capacity, self.capacity)
        for own, other in zip(self.layers, values.layers, strict=True):
            for name in ("keys", "values"):
                found = getattr(other, name)[:, :, :width].index_select(0, rows)
                getattr(own, name)[:, :, :width].index_copy_(0, places, found)

    def copy_rows(self, places: Int[Tensor, " N"], lengths: Sequence[int]) -> KeyValues:
        """These rows in a cache of their own, each with as many tokens."""
        found = KeyValues(len(self.layers), lengths, max(lengths))
        for own, other in zip(found.layers, self.layers, strict=True):
            for name in ("keys", "values"):
                rows = getattr(other, name)[:, :, : found.capacity].index_select(0, places)
                setattr(own, name, rows)
            own.is_initialized = True
        return found


class _Aim:
    """The slots that a pass writes, counted through all rows and heads; shared by all layers.

    Attributes:
        places: For layers of so many heads of keys.
    """

    def __init__(self, buffers: Sequence[dict[str, Tensor]]) -> None:
        keys = buffers[0]["keys"]
        num_rows, _, self._capacity, _ = keys.shape
        self._rows = torch.arange(num_rows, device=keys.device)
        counts = dict.fromkeys(states.shape[1] for own in buffers for states in own.values())
        self.places: dict[int, Int[Tensor, " RK"]] = dict.fromkeys(counts, self._rows)

    def at(self, slots: Int[Tensor, " R"]) -> None:
        for count in self.places:
            heads = torch.arange(count, device=self._rows.device)
            first = (self._rows[:, None] * count + heads) * self._capacity
            self.places[count] = (first + slots[:, None]).flatten()


class _SlotLayer(CacheLayerMixin):  # type: ignore[misc]
    def __init__(
        self, keys: Float[Tensor, "R K C D"], values: Float[Tensor, "R K C E"], *, aim: _Aim
    ) -> None:
        super().__init__()
        self.keys, self.values, self._aim = keys, values, aim
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """The buffers are there from the beginning."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        del args, kwargs
        for buffer, states in ((self.keys, key_states), (self.values, value_states)):
            places = self._aim.places[buffer.shape[1]]
            # Along one dimension: to index rows and slots by two would take a sort.
            flat = buffer.view(-1, buffer.shape[3])
            flat.index_copy_(0, places, states.reshape(-1, buffer.shape[3]).to(buffer.dtype))
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        del query_length
        return self.keys.shape[2], 0

    def get_max_length(self) -> int:
        return int(self.keys.shape[2])
