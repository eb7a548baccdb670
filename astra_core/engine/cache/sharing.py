"""What contexts begin with in common, which is read and stored once for all of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from astra_core.engine.cache.prefixes import Place

_LEAST_SHARED = 16
"""Tokens of a beginning that is worth a pass of its own."""
_PASS = 32
"""A decoding pass costs as much as reading so many tokens, however few rows it has."""


def best_prefixes(contexts: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Of each context the prefix that saves most: its length, and how many have it; else (0, 1)."""
    order = sorted(range(len(contexts)), key=lambda index: tuple(contexts[index]))
    common = [_num_common(contexts[i], contexts[j]) for i, j in pairwise(order)]
    best = [(0, 1)] * len(contexts)
    # Runs of neighbours that begin with as many common tokens, each with the first of them.
    runs: list[tuple[int, int]] = []
    for place, length in enumerate([*common, 0]):
        first = place
        while runs and runs[-1][0] > length:
            shared, first = runs.pop()
            own = shared, place + 1 - first
            for each in order[first : place + 1]:
                best[each] = max(best[each], own, key=_num_saved)
        if length and not (runs and runs[-1][0] == length):
            runs.append((length, first))
    return best


@dataclass(frozen=True, slots=True)
class Continued:
    """A context that rows continue from.

    Attributes:
        context: Token ids, at least one.
        keys: The random key of each row.
        suffix: How many last tokens of the context to score.
        place: The stored beginning that it continues from; None if nothing of it is stored.
    """

    context: Sequence[int]
    keys: Sequence[bytes] = ()
    suffix: int = 0
    place: Place | None = None

    @property
    def known(self) -> int:
        """Tokens of the stored beginning."""
        return self.place[2] if self.place else 0

    @property
    def limit(self) -> int:
        """Tokens that need not be read: what comes after each of the others is asked for."""
        return len(self.context) - 1 - self.suffix


def shared_prefixes(rows: Sequence[Continued]) -> list[tuple[int, ...]]:
    """Of each row the beginning that saves most and need not be scored; () where none is shared."""
    best = best_prefixes([own.context for own in rows])
    lengths = [min(length, own.limit) for own, (length, _) in zip(rows, best, strict=True)]
    return [
        tuple(own.context[: length if length >= _LEAST_SHARED else 0])
        for own, length in zip(rows, lengths, strict=True)
    ]


def common_prefix(contexts: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """What all begin with; () where that is too little to be read apart."""
    rows = [*map(tuple, contexts)]
    length = _num_common(min(rows), max(rows))
    return rows[0][: length if length >= _LEAST_SHARED else 0]


def held_tokens(prefixes: Sequence[Sequence[int]], *, takes_stems: bool) -> int:
    """Tokens that a cache of these beginnings holds, each as long as the longest.

    What all begin with is held once if worth a pass and ``takes_stems`` (see ``stem_batches``).
    """
    if not prefixes:
        return 0
    stem = len(common_prefix(prefixes)) * (takes_stems and len(prefixes) > 1)
    # A reading leaves room for one more token.
    return stem + len(prefixes) * (max(map(len, prefixes)) - stem + 1)


def families(
    rows: Sequence[Continued], *, room: int, budget: int, most: int, takes_stems: bool
) -> list[list[int]]:
    """Indices of contexts in groups, in each of which what several begin with can be kept.

    Contexts that begin alike come one after the other. All are one group where that many tokens
    hold all beginnings, or where more passes would cost more than reading again.

    Args:
        room: Tokens that each row may add.
        budget: Positions of tokens of a batch.
        most: Tokens that are kept.
        takes_stems: See ``stem_batches``.
    """
    found = [own if len(own) < most else () for own in shared_prefixes(rows)]
    groups: list[list[int]] = [[]]
    kept: list[tuple[int, ...]] = []
    saved = 0
    for index in sorted(range(len(rows)), key=lambda at: tuple(rows[at].context)):
        own = found[index]
        if own in kept:
            saved += len(own)
        elif own:
            if held_tokens([*kept, own], takes_stems=takes_stems) > most:
                groups.append([])
                kept = []
            kept.append(own)
        groups[-1].append(index)
    positions = sum(max(len(own.keys), 1) * (len(own.context) + room) for own in rows)
    further = max(0, len(groups) - -(-positions // budget))
    is_worth_it = len(groups) > 1 and saved > _PASS * room * further
    return groups if is_worth_it else [list(range(len(rows)))]


def stem_batches(
    rows: Sequence[Continued], *, room: int, budget: int, takes_stems: bool
) -> list[list[int]]:
    """Indices of contexts for one batch each; what a batch's cache holds stays within the budget.

    A single context above the budget has a batch of its own. There are as few batches as that
    allows, of about as many rows.

    Args:
        room: Tokens that each row may add.
        budget: Positions of tokens.
        takes_stems: Beginnings that most rows share are stored once.
    """
    families = {own.place: number for number, own in enumerate(reversed(rows))}
    order = sorted(
        range(len(rows)),
        key=lambda at: (rows[at].known, families[rows[at].place], len(rows[at].context)),
    )
    count = sum(max(len(own.keys), 1) for own in rows)

    def cut(most: int) -> list[list[int]]:
        found: list[list[int]] = []
        held = _Held(room, takes_stems=takes_stems)
        for at in order:
            if not held.takes(rows[at], budget, most):
                held = _Held(room, takes_stems=takes_stems)
                held.takes(rows[at], budget, most)
                found.append([])
            elif not found:
                found.append([])
            found[-1].append(at)
        return found

    fewest = cut(count)
    even = cut(-(-count // max(len(fewest), 1)))
    return even if len(even) == len(fewest) else fewest


class _Held:
    """What the cache of a batch holds, as contexts are added to it."""

    def __init__(self, room: int, *, takes_stems: bool) -> None:
        self._room, self._takes_stems = room, takes_stems
        self._places: set[Place | None] = set()
        self._known = self._unread = self._length = self._contexts = self._rows = 0

    def takes(self, own: Continued, budget: int, most: int) -> bool:
        """Adds the context if the batch is empty or stays within budget and number of rows."""
        before = vars(self) | {"_places": set(self._places)}
        self._places.add(own.place)
        self._known = max(self._known, own.known)
        self._unread = max(self._unread, len(own.context) - own.known)
        self._length = max(self._length, len(own.context))
        self._contexts += 1
        self._rows += max(len(own.keys), 1)
        fits = self._rows <= most and self._positions() <= budget
        if not fits and before["_contexts"]:
            vars(self).update(before)
            return False
        return True

    def _positions(self) -> int:
        rows, room, stems = self._rows, self._room, len(self._places)
        is_stem = self._takes_stems and self._known and 2 * stems <= self._contexts
        is_fork = self._takes_stems and 2 * self._contexts <= rows
        if is_stem and not (is_fork and 2 * self._unread > self._length):
            return stems * self._known + rows * (self._unread + room)
        if is_fork:
            return self._contexts * self._length + rows * room
        return rows * (self._length + room)


def _num_saved(prefix: tuple[int, int]) -> int:
    """How many tokens a row saves, on average."""
    length, rows = prefix
    return length - -(-length // rows)


def _num_common(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(first), len(second)))
