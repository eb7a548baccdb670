"""What contexts begin with in common, which is read and stored once for all of them."""

from collections.abc import Sequence
from itertools import accumulate, pairwise


def best_prefixes(
    contexts: Sequence[Sequence[int]], num_rows: Sequence[int]
) -> list[tuple[int, int]]:
    """Of each context the prefix that saves most, if one is shared: its length, and its rows.

    Args:
        contexts: Token ids.
        num_rows: How many rows continue from each; those of one share all of it.
    """
    order = sorted(range(len(contexts)), key=lambda index: tuple(contexts[index]))
    before = [0, *accumulate(num_rows[index] for index in order)]
    common = [_num_common(contexts[i], contexts[j]) for i, j in pairwise(order)]
    best = [(0, 1)] * len(contexts)
    # Runs of neighbours that begin with as many common tokens, each with the first of them.
    runs: list[tuple[int, int]] = []
    for place, (index, length) in enumerate(zip(order, [*common, 0], strict=False)):
        first = place
        runs.append((len(contexts[index]), place))
        while runs and runs[-1][0] > length:
            shared, first = runs.pop()
            own = shared, before[place + 1] - before[first]
            for each in order[first : place + 1]:
                best[each] = max(best[each], own, key=_saved)
        if length and not (runs and runs[-1][0] == length):
            runs.append((length, first))
    return best


def stem_costs(contexts: Sequence[Sequence[int]], num_rows: Sequence[int], room: int) -> list[int]:
    """Positions that a context and its rows hold in a cache which stores a shared prefix once.

    A function of the contexts alone, not of what a store has just then: batches stay the same after
    a kill. A prefix is shared out among the rows that continue from it. ``room``: tokens that each
    row may add.
    """
    best = best_prefixes(contexts, num_rows)
    return [
        (len(context) - _saved(prefix) + room) * rows
        for context, prefix, rows in zip(contexts, best, num_rows, strict=True)
    ]


def _saved(prefix: tuple[int, int]) -> int:
    """How many tokens a row saves, on average."""
    length, rows = prefix
    return length - -(-length // rows)


def _num_common(first: Sequence[int], second: Sequence[int]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(first), len(second)))
