"""Attention over packed trees that skips keys which no token of a stretch may attend to.

Most of a packed tree is masked: a branch attends to its ancestors and itself, not to other
branches. In depth-first order a branch is one stretch, so the attention of a tree is that of a few
stretches of queries, each to the stretches of keys that it descends from.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from astra_core.engine.carrier import with_load

MAX_WHOLE_TOKENS = 256
"""A branch of at most this length is one block; smaller products gain nothing."""
_WORTH_SCORES = 0.75
_WORTH_KEYS = 4.0

Stretch = tuple[int, int]
"""From the first token to the one after the last."""


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of queries, and the stretches of keys that any of them sees, in order."""

    queries: Stretch
    keys: tuple[Stretch, ...]


@dataclass(frozen=True, slots=True)
class Blocks:
    """How attention over packed rows is divided into blocks.

    Attributes:
        rows: The blocks of each row, which are all of its tokens in order.
        masks: Of each block of each row: what is added to its scores.
    """

    rows: Sequence[Sequence[Block]]
    masks: Sequence[Sequence[Float[Tensor, "1 1 q k"]]]


def branch_blocks(slots: Sequence[int], parents: Sequence[int], width: int) -> list[list[Block]]:
    """The blocks of rows of trees whose branches lie in one stretch each, trees from slot 0 on.

    Args:
        slots: Of each token in the flattened rows; a branch's lie together, its root first.
        parents: The token before each in its sequence, earlier in the list; -1 for a root.
        width: Of a row.
    """
    num_rows = 1 + max(slots) // width
    if width <= MAX_WHOLE_TOKENS:
        return [[Block((0, width), ((0, width),))] for _ in range(num_rows)]
    sizes, children = branch_sizes(parents), _children(parents)
    roots: list[list[int]] = [[] for _ in range(num_rows)]
    for slot, root in sorted((slots[n], n) for n, parent in enumerate(parents) if parent < 0):
        roots[slot // width].append(root)
    rows = [_of_family(family, sizes, children) for family in roots]
    for blocks in rows:
        blocks.sort(key=lambda block: block.queries)
        end = blocks[-1].queries[1]
        if end < width:
            blocks.append(Block((end, width), ((end, width),)))
    return rows


def with_blocks(
    mask: Float[Tensor, "R 1 N N"], rows: Sequence[Sequence[Block]]
) -> Float[Tensor, "R 1 N N"]:
    """The mask, with the blocks as its load if they reduce the work of attention.

    Every block is a call of its own and keeps a copy of its keys and values for the gradient, so
    blocks must leave out scores that count and not repeat keys too often.
    """
    if _are_worth_it(rows, mask.shape[-1]):
        masks = [
            [_mask_between(own, block.keys, block.queries) for block in blocks]
            for own, blocks in zip(torch.split(mask, 1), rows, strict=True)
        ]
        return with_load(mask, Blocks(rows, masks))
    return mask


def by_blocks(
    attend: Callable[[Tensor, Tensor, Tensor, Tensor], Float[Tensor, "1 q H E"]],
    query: Float[Tensor, "R H N D"],
    *,
    key: Float[Tensor, "R K N D"],
    value: Float[Tensor, "R K N E"],
    blocks: Blocks,
) -> Float[Tensor, "R N H E"]:
    """Attention block by block; ``attend`` is that of queries to keys and values under a mask."""
    tensors = zip(*(torch.split(tensor, 1) for tensor in (query, key, value)), strict=True)
    rows = zip(tensors, blocks.rows, blocks.masks, strict=True)
    return torch.cat([_row(attend, own, blocks=cut, masks=masks) for own, cut, masks in rows])


def _row(
    attend: Callable[..., Tensor],
    tensors: tuple[Tensor, Tensor, Tensor],
    *,
    blocks: Sequence[Block],
    masks: Sequence[Tensor],
) -> Float[Tensor, "1 N H E"]:
    query, key, value = tensors
    cuts = sorted({0, *(end for block in blocks for stretch in block.keys for end in stretch)})
    # The gradient of a split is one concatenation; that of slices would be a sum with zeros.
    keys, values = (_Pieces(whole, cuts) for whole in (key, value))
    lengths = [end - begin for begin, end in (block.queries for block in blocks)]
    queries = torch.split(query, lengths, dim=2)
    parts = zip(queries, blocks, masks, strict=True)
    return torch.cat(
        [attend(own, keys.of(block), values.of(block), mask) for own, block, mask in parts], dim=1
    )


class _Pieces:
    """Keys or values of one row, cut so that every stretch is made of whole pieces."""

    def __init__(self, whole: Tensor, cuts: list[int]) -> None:
        self._number = {cut: number for number, cut in enumerate(cuts)}
        lengths = [end - begin for begin, end in pairwise(cuts)]
        self._pieces = torch.split(whole, lengths, dim=2)

    def of(self, block: Block) -> Tensor:
        own: list[Any] = []
        for begin, end in block.keys:
            own += self._pieces[self._number[begin] : self._number[end]]
        return own[0] if len(own) == 1 else torch.cat(own, dim=2)


def branch_sizes(parents: Sequence[int]) -> list[int]:
    """How many tokens descend from each, itself included; parents come before their children."""
    sizes = [1] * len(parents)
    for number in range(len(parents) - 1, -1, -1):
        if parents[number] >= 0:
            sizes[parents[number]] += sizes[number]
    return sizes


def _children(parents: Sequence[int]) -> list[list[int]]:
    children: list[list[int]] = [[] for _ in parents]
    for number, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(number)
    return children


def _are_worth_it(rows: Sequence[Sequence[Block]], width: int) -> bool:
    sizes = [
        (block.queries[1] - block.queries[0], sum(end - begin for begin, end in block.keys))
        for blocks in rows
        for block in blocks
    ]
    num_tokens = len(rows) * width
    num_scores, num_keys = sum(q * k for q, k in sizes), sum(k for _, k in sizes)
    return num_scores < _WORTH_SCORES * num_tokens * width and num_keys < _WORTH_KEYS * num_tokens


def _of_family(roots: list[int], sizes: list[int], children: list[list[int]]) -> list[Block]:
    found = []
    # A family is one stretch: siblings that are small form one block together.
    waiting: list[tuple[list[int], int, tuple[Stretch, ...]]] = [(roots, 0, ())]
    while waiting:
        family, start, before = waiting.pop()
        for group in _groups_of(family, sizes):
            size = sum(sizes[number] for number in group)
            end, last = start + size, group[-1]
            if size > MAX_WHOLE_TOKENS:
                end = start + 1
                while len(children[last]) == 1:
                    end, last = end + 1, children[last][0]
                waiting.append((children[last], end, _join(before, (start, end))))
            found.append(Block((start, end), _join(before, (start, end))))
            start += size
    return found


def _groups_of(family: list[int], sizes: list[int]) -> list[list[int]]:
    """Siblings in order, in groups that are no longer than a whole; a longer one is alone."""
    groups: list[list[int]] = []
    total = 0
    for number in family:
        total += sizes[number]
        if not groups or total > MAX_WHOLE_TOKENS:
            groups.append([])
            total = sizes[number]
        groups[-1].append(number)
    return groups


def _join(stretches: tuple[Stretch, ...], last: Stretch) -> tuple[Stretch, ...]:
    if stretches and stretches[-1][1] == last[0]:
        return (*stretches[:-1], (stretches[-1][0], last[1]))
    return (*stretches, last)


def _mask_between(mask: Tensor, keys: Sequence[Stretch], queries: Stretch) -> Tensor:
    lines = mask[:, :, slice(*queries)]
    return torch.cat([lines[..., slice(*stretch)] for stretch in keys], dim=3)
