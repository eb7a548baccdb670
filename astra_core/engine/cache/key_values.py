"""Keys and values of the tokens that a model has read, one row per sequence.

Row ``b`` holds the token at position ``p`` in slot ``p``, whatever the other rows hold: a row can
be forked, dropped, kept for the next turn or cut to a prefix without moving anything inside it.
What is behind the end of a row is never visible and is overwritten. Rows that continue from the
same prefix may leave it in a stem; the slots are then those behind the prefix.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from astra_core.engine.cache.stems import Stem
from astra_core.engine.carrier import with_load

Beginning = tuple[int, int]
"""A row and a number of its first tokens."""
_Source = Callable[[int, str, Beginning], list[Tensor]]
"""Gives the parts of a layer's keys or values for the beginning of a row."""


@dataclass(frozen=True, slots=True)
class Pass:
    """The arguments of a forward pass over a cache.

    Attributes:
        positions: Of each token in its row.
        slots: The slots for its keys and values.
        width: Number of slots that the pass reads.
        is_even: True when all rows have the same length before and after.
    """

    positions: Int[Tensor, "B Q"]
    slots: Int[Tensor, "B Q"]
    width: int
    is_even: bool


@dataclass(slots=True)
class _Span:
    """Where the current pass writes; shared by all layers of a cache.

    The layers have no reference to their cache: a reference cycle would keep its memory until
    Python's garbage collection.
    """

    longest: int
    capacity: int
    stem: Stem | None = None
    width: int = 0
    start: int | None = None
    slots: Tensor | None = None

    def write(self, states: Float[Tensor, "B H Q D"], buffer: Float[Tensor, "B H C D"]) -> None:
        """Writes the states of the pass into their slots."""
        if self.start is not None:
            buffer[:, :, self.start : self.width] = states
        elif self.slots is not None:
            rows = torch.arange(len(states), device=states.device)[:, None]
            buffer[rows, :, self.slots] = states.transpose(1, 2)


class KeyValues(Cache):  # type: ignore[misc]
    """A transformers cache of rows of different lengths with room to grow in place.

    Attributes:
        lengths: Tokens of each row that is not retired, the ones of the stem and of the pass that
            is going on not counted.
        capacity: Slots of each row.
        stem: The prefixes that the rows continue from, if they are stored separately.
    """

    def __init__(
        self, num_layers: int, lengths: Sequence[int], capacity: int, *, stem: Stem | None = None
    ) -> None:
        self._span = _Span(max(lengths), capacity, stem=stem)
        super().__init__(layers=[_Layer(self._span, index) for index in range(num_layers)])
        self.lengths = list(lengths)
        self.capacity = capacity
        self.stem = stem
        self._ends = self.lengths

    def open(self, counts: Sequence[int], device: torch.device) -> Pass:
        """Begins a pass in which row ``b`` adds ``counts[b]`` tokens.

        All rows write as many tokens as the longest; a row's surplus goes into the slot behind its
        end.
        """
        ends = [length + n for length, n in zip(self.lengths, counts, strict=True)]
        begins = torch.tensor(self.lengths, device=device)[:, None]
        wanted = begins + torch.arange(max(counts), device=device)
        limit = torch.tensor(ends, device=device)[:, None]
        is_even = len(set(ends)) == len(set(self.lengths)) == 1
        # Rows of one length are written as one slice, which is several times faster.
        span, self._ends = self._span, ends
        span.longest = max(self.lengths)
        span.start = self.lengths[0] if is_even else None
        span.slots = slots = torch.minimum(wanted, limit)
        span.width = max(ends) + (not is_even)
        positions = torch.minimum(wanted, limit - 1)
        if self.stem is not None:
            before = torch.tensor(self.stem.lengths(len(ends)), device=device)
            positions = positions + before[:, None]
        return Pass(positions, slots, span.width, is_even)

    def close(self) -> None:
        """Ends the pass: its tokens count from now on."""
        self.lengths = self._ends

    def copy_rows(self, rows: Sequence[int], *, capacity: int) -> Self:
        """Copies of these rows, also several of one; the stem is not copied."""
        stem = None if self.stem is None else self.stem.of_rows(rows)
        lengths = [self.lengths[row] for row in rows]
        found = type(self)(len(self.layers), lengths, capacity, stem=stem)
        if any(lengths):
            found._fill([(self.parts, own) for own in zip(rows, lengths, strict=True)])  # noqa: SLF001
        return found

    def fork(self, rows: Sequence[int], *, capacity: int) -> Self:
        """New rows that continue from these, also several from one; nothing is copied.

        This cache is their stem from now on and must not be written to.
        """
        return type(self)(len(self.layers), [0] * len(rows), capacity, stem=Stem(self, rows))

    @classmethod
    def gather(cls, pieces: Sequence[tuple[Self, int, int]], *, capacity: int) -> Self:
        """Rows of any caches of one model, each cut to its first tokens, copied side by side.

        Args:
            pieces: Cache, row and number of tokens of each new row, those of its stem counted.
            capacity: Slots of each new row.
        """
        num_layers = len(pieces[0][0].layers)
        found = cls(num_layers, [length for _, _, length in pieces], capacity)
        is_plain = all(cache.stem is None for cache, _, _ in pieces)
        if is_plain and pieces[0][0].layers[0].keys.device.type != "cpu":
            found._fill_together(pieces)
        else:
            found._fill([(cache._whole, (row, length)) for cache, row, length in pieces])  # noqa: SLF001
        return found

    def _fill_together(self, pieces: Sequence[tuple[Self, int, int]]) -> None:
        """What ``_fill`` does, in few large copies, which take more memory.

        Slots behind a row's end hold what they hold where it comes from.
        """
        width = max(self.lengths)
        sources = {id(cache): cache for cache, _, _ in pieces}
        device = pieces[0][0].layers[0].keys.device
        copies = []
        for number, cache in sources.items():
            own = [(to, row) for to, (of, row, _) in enumerate(pieces) if id(of) == number]
            copies.append((cache, *torch.tensor(own, device=device).T))
        for index, layer in enumerate(self.layers):
            for name in ("keys", "values"):
                like = getattr(pieces[0][0].layers[index], name)
                _, heads, _, depth = like.shape
                found = like.new_zeros((len(pieces), heads, self.capacity, depth))
                for cache, places, rows in copies:
                    own = getattr(cache.layers[index], name)[:, :, :width].index_select(0, rows)
                    found[:, :, : own.shape[2]].index_copy_(0, places, own)
                setattr(layer, name, found)
            layer.is_initialized = True

    def _fill(self, pieces: Sequence[tuple[_Source, Beginning]]) -> None:
        """Allocates the layers; the first tokens of each piece go to the row in its place."""
        width = max(self.lengths)
        for index, layer in enumerate(self.layers):
            for name in ("keys", "values"):
                parts = [source(index, name, own) for source, own in pieces]
                setattr(layer, name, _stack(parts, width, self.capacity))
            layer.is_initialized = True

    def parts(self, layer: int, name: str, beginning: Beginning) -> list[Tensor]:
        """Keys or values of a beginning as stored here, without its stem."""
        row, length = beginning
        buffer: Tensor = getattr(self.layers[layer], name)
        return [buffer[row, :, :length]]

    def _whole(self, layer: int, name: str, beginning: Beginning) -> list[Tensor]:
        """Keys or values of a beginning, those of its stem before its own."""
        if self.stem is None:
            return self.parts(layer, name, beginning)
        row, length = beginning
        owner = self.stem.owners[row]
        before = min(length, self.stem.values.lengths[owner])
        parts = self.stem.values.parts(layer, name, (owner, before))
        return (
            parts if before == length else parts + self.parts(layer, name, (row, length - before))
        )

    def retire(self, is_over: Sequence[bool]) -> list[int]:
        """Moves finished rows behind the others, which continue alone; nothing is copied.

        Returns:
            Which row is now in each place: first those that continue, then the retired.
        """
        order = list(range(len(self.lengths)))
        num_kept = len(order) - sum(is_over)
        holes = [place for place in order[:num_kept] if is_over[place]]
        movers = [place for place in order[num_kept:] if not is_over[place]]
        for hole, mover in zip(holes, movers, strict=True):
            order[hole], order[mover] = mover, hole
        if holes:
            # New rows that continue from a stem have no buffers before their first pass.
            for layer in (own for own in self.layers if own.is_initialized):
                _swap(layer.keys, holes, movers)
                _swap(layer.values, holes, movers)
        self.lengths = [self.lengths[place] for place in order[:num_kept]]
        if self.stem is not None:
            self.stem.reorder(order, num_kept)
        return order

    def has_room(self, num_tokens: int) -> bool:
        """True if every row has room for this many more tokens and the slot behind its end."""
        return max(self.lengths) + num_tokens < self.capacity

    @property
    def totals(self) -> list[int]:
        """Tokens of each row that is not retired, those of its stem counted."""
        if self.stem is None:
            return self.lengths
        before = self.stem.lengths(len(self.lengths))
        return [first + own for first, own in zip(before, self.lengths, strict=True)]

    @property
    def num_bytes(self) -> int:
        """Memory of the buffers, the stem's included."""
        layers: list[Any] = self.layers
        own: int = sum(2 * layer.keys.nbytes for layer in layers if layer.is_initialized)
        return own + (0 if self.stem is None else self.stem.values.num_bytes)


class _Layer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's buffers, allocated at the first pass."""

    def __init__(self, span: _Span, index: int) -> None:
        super().__init__()
        self._span = span
        self._index = index

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys = _buffer(key_states, self._span.capacity)
        self.values = _buffer(value_states, self._span.capacity)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        del args, kwargs
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        # Rows behind these are retired.
        keys, values = self.keys[: len(key_states)], self.values[: len(key_states)]
        self._span.write(key_states, keys)
        self._span.write(value_states, values)
        width, stem = self._span.width, self._span.stem
        keys, values = keys[:, :, :width], values[:, :, :width]
        if stem is not None:
            # Models pass what they get here to their attention, and do not know of stems.
            keys = with_load(keys, stem.prefixes(self._index, len(keys)))
        return keys, values

    def get_seq_length(self) -> int:
        return self._span.longest

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        return self._span.capacity


def _buffer(states: Float[Tensor, "B H Q D"], capacity: int) -> Float[Tensor, "B H C D"]:
    rows, heads, _, size = states.shape
    return torch.zeros((rows, heads, capacity, size), dtype=states.dtype, device=states.device)


def _swap(slots: Float[Tensor, "B H C D"], first: list[int], second: list[int]) -> None:
    here = torch.tensor(first, device=slots.device)
    there = torch.tensor(second, device=slots.device)
    kept = slots[here]
    slots[here] = slots[there]
    slots[there] = kept


def _stack(
    rows: Sequence[Sequence[Float[Tensor, "H n D"]]], width: int, capacity: int
) -> Float[Tensor, "B H C D"]:
    """Each row's parts one after the other; slots behind a row's end hold anything finite."""
    heads, _, depth = rows[0][0].shape
    found = rows[0][0].new_empty((len(rows), heads, capacity, depth))
    # Not uninitialised memory: a masked slot times zero must not be NaN.
    found[:, :, width:] = 0.0
    # Row by row: to select them all at once would double the memory.
    for slots, parts in zip(found, rows, strict=True):
        end = 0
        for part in parts:
            slots[:, end : end + part.shape[1]] = part
            end += part.shape[1]
        slots[:, end:width] = 0.0
    return found
