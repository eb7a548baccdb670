"""Prefixes from which several rows of a cache continue, stored once for all of them.

Siblings, and the replies to one probe, share everything except their last tokens. Decoding is bound
by reading keys and values from memory, so each prefix is read once per step and multiplied by the
queries of all its rows.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from astra_core.engine.masks import additive_mask


@runtime_checkable
class Prefixes(Protocol):
    """The part of a cache that a stem needs for its prefixes."""

    layers: list[Any]
    lengths: list[int]

    @property
    def num_bytes(self) -> int:
        """Memory of the buffers."""

    def copy_rows(self, rows: Sequence[int], *, capacity: int) -> Self:
        """These rows, copied."""

    def parts(self, layer: int, name: str, beginning: tuple[int, int]) -> list[Tensor]:
        """Keys or values of a row's first tokens."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Which rows continue from which prefix.

    Attributes:
        num_prefixes: ``S``.
        size: ``G``, rows of the prefix that has the most.
        places: Of each row among the ``S * G`` there could be; None where it is its own number.
        lengths: Tokens of each prefix.
    """

    num_prefixes: int
    size: int
    places: Int[Tensor, " B"] | None
    lengths: Int[Tensor, " S"]

    @classmethod
    def of(cls, owners: Sequence[int], lengths: Sequence[int], device: torch.device) -> Self:
        """Groups of rows by the prefix that each belongs to."""
        size = max(Counter(owners).values())
        met: Counter[int] = Counter()
        places = []
        for owner in owners:
            places.append(owner * size + met[owner])
            met[owner] += 1
        is_regular = places == list(range(len(lengths) * size))
        return cls(
            len(lengths),
            size,
            None if is_regular else torch.tensor(places, device=device),
            torch.tensor(lengths, device=device),
        )

    def together(self, rows: Float[Tensor, "B K N X"]) -> Float[Tensor, "S K G*N X"]:
        """The rows of each prefix side by side; zeros where a prefix has fewer rows."""
        _, heads, count, width = rows.shape
        if self.places is not None:
            spread = rows.new_zeros(self.num_prefixes * self.size, heads, count, width)
            rows = spread.index_copy_(0, self.places, rows)
        grouped = rows.reshape(self.num_prefixes, self.size, heads, count, width).transpose(1, 2)
        return grouped.reshape(self.num_prefixes, heads, self.size * count, width)

    def apart(self, grouped: Float[Tensor, "S K G*N X"]) -> Float[Tensor, "B K N X"]:
        """The inverse of ``together``."""
        _, heads, count, width = grouped.shape
        split = grouped.reshape(self.num_prefixes, heads, self.size, count // self.size, width)
        rows = split.transpose(1, 2).flatten(0, 1)
        return rows if self.places is None else rows.index_select(0, self.places)

    def mask(self, width: int, dtype: torch.dtype) -> Float[Tensor, "S 1 1 T"] | None:
        """The mask that hides slots behind the end of each prefix; None if all are equally long."""
        if bool((self.lengths == width).all()):
            return None
        is_visible = torch.arange(width, device=self.lengths.device) < self.lengths[:, None]
        return additive_mask(is_visible[:, None], dtype)


@dataclass(frozen=True, slots=True)
class Shared:
    """One layer's keys and values of the prefixes, as a forward pass needs them."""

    keys: Float[Tensor, "S K T D"]
    values: Float[Tensor, "S K T D"]
    groups: Groups
    mask: Float[Tensor, "S 1 1 T"] | None


class Stem:
    """Prefixes that are no longer written to, and the prefix of each row.

    Attributes:
        values: One row per prefix.
        owners: The prefix of each row; those of retired rows stand behind the others.
    """

    _near: Prefixes
    _groups: Groups | None
    _mask: Tensor | None

    def __init__(self, values: Prefixes, owners: Sequence[int]) -> None:
        self.values = values
        self.owners = list(owners)
        self.settle()

    def lengths(self, num_rows: int) -> list[int]:
        """Tokens of the prefixes of the first rows."""
        return [self.values.lengths[owner] for owner in self.owners[:num_rows]]

    def of_rows(self, rows: Sequence[int]) -> "Stem":
        """The same prefixes, for these rows, also several times each."""
        return Stem(self.values, [self.owners[row] for row in rows])

    def reorder(self, order: Sequence[int], num_kept: int) -> None:
        """Row ``order[b]`` is now in place ``b``, and only the first ``num_kept`` continue."""
        self.owners[: len(order)] = [self.owners[place] for place in order]
        self._groups = None
        alive = sorted(set(self.owners[:num_kept]))
        longest = max((self.values.lengths[owner] for owner in alive), default=0)
        # Where more are alive, less than half of what is read at each step is useless; a cache of
        # nothing, for rows that began with no prefix, has no layers to read.
        if longest and 2 * len(alive) <= len(self._near.lengths):
            self._near = self.values.copy_rows(alive, capacity=longest)
            self._numbers = {owner: number for number, owner in enumerate(alive)}

    def settle(self) -> None:
        """Frees the memory of earlier passes; further passes remain possible."""
        # The prefixes that rows still continue from, and their numbers among these.
        self._near = self.values
        self._numbers = {owner: owner for owner in self.owners}
        self._groups = self._mask = None

    def prefixes(self, layer: int, num_rows: int) -> Shared:
        """The prefixes that the first rows share in one layer."""
        own: Any = self._near.layers[layer]
        width = max(self._near.lengths)
        keys, values = own.keys[:, :, :width], own.values[:, :, :width]
        if self._groups is None:
            owners = [self._numbers[owner] for owner in self.owners[:num_rows]]
            self._groups = Groups.of(owners, self._near.lengths, keys.device)
            self._mask = self._groups.mask(width, keys.dtype)
        return Shared(keys, values, self._groups, self._mask)
