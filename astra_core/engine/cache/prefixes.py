"""A store of keys and values, found by their tokens, so that nothing is read twice."""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from astra_core.engine.cache.key_values import KeyValues

Place = tuple[KeyValues, int, int]
"""A cache, a row of it, and a number of the row's first tokens."""


class PrefixStore:
    """Keys and values of sequences; the oldest are evicted first when memory runs out."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._num_bytes = 0
        self._blocks: OrderedDict[int, tuple[KeyValues, list[bytes]]] = OrderedDict()
        self._places: dict[bytes, tuple[int, int]] = {}
        self._lengths: dict[int, int] = {}
        self._next = 0

    def add(self, values: KeyValues, sequences: Sequence[Sequence[int]]) -> None:
        """Stores row ``b`` of the cache as the tokens ``sequences[b]``; takes the cache over."""
        if values.num_bytes > self.max_bytes:
            return
        block, names = self._next, []
        self._next += 1
        for row, ids in enumerate(sequences):
            name = _name(ids)
            if name and name not in self._places:
                self._places[name] = (block, row)
                self._lengths[len(name)] = self._lengths.get(len(name), 0) + 1
                names.append(name)
        self._blocks[block] = (values, names)
        self._num_bytes += values.num_bytes
        while self._num_bytes > self.max_bytes:
            self._forget_oldest()

    def find(self, ids: Sequence[int], *, limit: int) -> Place | None:
        """The longest stored sequence that ``ids`` start with, cut to ``limit`` tokens."""
        name = _name(ids)
        for length in sorted(self._lengths, reverse=True):
            place = self._places.get(name[:length]) if length <= len(name) else None
            if place is not None:
                block, row = place
                values, _ = self._blocks[block]
                self._blocks.move_to_end(block)
                usable = min(length // _ID_BYTES, limit)
                return (values, row, usable) if usable > 0 else None
        return None

    def places(
        self, contexts: Sequence[Sequence[int]], suffix_lengths: Sequence[int]
    ) -> list[Place | None]:
        """Where the beginning of each context is, as far as a reading that scores suffixes may go.

        A place stays usable if the store forgets it.
        """
        pairs = zip(contexts, suffix_lengths, strict=True)
        return [self.find(own, limit=len(own) - 1 - suffix) for own, suffix in pairs]

    def _forget_oldest(self) -> None:
        _, (values, names) = self._blocks.popitem(last=False)
        self._num_bytes -= values.num_bytes
        for name in names:
            del self._places[name]
            self._lengths[len(name)] -= 1
            if not self._lengths[len(name)]:
                del self._lengths[len(name)]


_ID_BYTES = 4


def _name(ids: Sequence[int]) -> bytes:
    """Bytes of which every prefix of ``ids`` has a prefix."""
    return np.asarray(ids, dtype=np.int32).tobytes()
