"""Sequences with common beginnings, packed so that what they share is computed once.

The turns of a tree repeat their context: siblings differ only in the probe, and a later turn begins
with all earlier ones. Merged by their tokens they form a tree again. Its tokens are in one row;
each attends only to its ancestors, at the position that it has in its sequence. Since attention is
causal, every token gets the same result and gradient as in a separate sequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from astra_core.engine.trees.tree_attention import Block, branch_blocks, branch_sizes


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Trees of tokens, one or more to a row.

    Attributes:
        input_ids: Padding holds an arbitrary id.
        positions: Of each token in its sequence, from 0.
        visible: True where a query is a key or descends from it; padding sees itself.
        places: Of each token of each sequence, in the flattened rows; a sequence's own are in its
            order, padded with its first.
        num_tokens: Different tokens; padding not counted.
        blocks: Of each row, for the attention.
    """

    input_ids: Int[Tensor, "R N"]
    positions: Int[Tensor, "R N"]
    visible: Bool[Tensor, "R N N"]
    places: Int[Tensor, "B S"]
    num_tokens: int
    blocks: list[list[Block]]


@dataclass(slots=True)
class _Forest:
    """Tokens merged by their ancestors, each after its parent."""

    ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    known: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, sequence: Sequence[int]) -> list[int]:
        """The numbers of the sequence's tokens."""
        found, parent = [], -1
        for depth, token in enumerate(sequence):
            number = self.known.get((parent, token))
            if number is None:
                number = self._grow(parent, token, depth)
            found.append(number)
            parent = number
        return found

    def _grow(self, parent: int, token: int, depth: int) -> int:
        number = len(self.ids)
        self.known[parent, token] = number
        self.ids.append(token)
        self.parents.append(parent)
        self.depths.append(depth)
        self.roots.append(number if parent < 0 else self.roots[parent])
        return number


def packed_rows(sequences: Sequence[Sequence[int]], *, device: torch.device | str) -> PackedRows:
    """The sequences, none empty, as rows no longer than the largest tree needs."""
    forest = _Forest()
    numbers = [forest.add(sequence) for sequence in sequences]
    slots, width, num_rows = _placement(forest)
    size = num_rows * width
    ids = torch.zeros(size, dtype=torch.long)
    positions = torch.zeros(size, dtype=torch.long)
    where = torch.tensor(slots)
    ids[where] = torch.tensor(forest.ids)
    positions[where] = torch.tensor(forest.depths)
    longest = max(map(len, sequences))
    places = torch.tensor(
        [[slots[n] for n in own] + [slots[own[0]]] * (longest - len(own)) for own in numbers]
    )
    return PackedRows(
        ids.view(num_rows, width).to(device),
        positions.view(num_rows, width).to(device),
        _visible(forest, slots, width=width, num_rows=num_rows).to(device),
        places.to(device),
        len(forest.ids),
        branch_blocks(slots, forest.parents, width),
    )


def _placement(forest: _Forest) -> tuple[list[int], int, int]:
    """The slot of every token, the width of a row, the number of rows; the largest tree first."""
    sizes: dict[int, int] = {}
    for root in forest.roots:
        sizes[root] = sizes.get(root, 0) + 1
    width = max(sizes.values())
    free: list[int] = []
    begins: dict[int, int] = {}
    for root in sorted(sizes, key=lambda root: (-sizes[root], root)):
        row = next((i for i, left in enumerate(free) if left >= sizes[root]), len(free))
        if row == len(free):
            free.append(width)
        begins[root] = row * width + width - free[row]
        free[row] -= sizes[root]
    return _depth_first(forest, begins), width, len(free)


def _depth_first(forest: _Forest, begins: dict[int, int]) -> list[int]:
    """The slot of every token, such that its descendants follow it directly."""
    sizes = branch_sizes(forest.parents)
    slots: list[int] = []
    free: list[int] = []
    for number, parent in enumerate(forest.parents):
        slot = begins[number] if parent < 0 else free[parent]
        if parent >= 0:
            free[parent] += sizes[number]
        slots.append(slot)
        free.append(slot + 1)
    return slots


def _visible(
    forest: _Forest, slots: Sequence[int], *, width: int, num_rows: int
) -> Bool[Tensor, "R N N"]:
    """Ancestors and self, row by row: a token sees what its parent sees, and itself."""
    visible = torch.zeros(num_rows * width, width, dtype=torch.bool)
    visible[torch.arange(num_rows * width), torch.arange(num_rows * width) % width] = True
    lines = visible.numpy()
    for slot, parent in zip(slots, forest.parents, strict=True):
        if parent >= 0:
            lines[slot] |= lines[slots[parent]]
    return visible.view(num_rows, width, width)
