"""Which of many numbers have occurred, and in which row, at sixteen bytes per number."""

import numpy as np
from numpy.typing import NDArray


class KnownNumbers:
    """Numbers with the row in which each occurred first; works on whole batches.

    A dictionary of Python numbers would take ten times the memory. The numbers are in sorted runs;
    runs of similar length are merged, so there are few runs and a number is seldom moved.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[NDArray[np.uint64], NDArray[np.int64]]] = []

    def rows(self, numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The row of each number; -1 for an unknown number."""
        found = np.full(numbers.size, -1, np.int64)
        for known, rows in self._runs:
            places = np.minimum(np.searchsorted(known, numbers), known.size - 1)
            is_here = known[places] == numbers
            found[is_here] = rows[places[is_here]]
        return found

    def add(self, numbers: NDArray[np.uint64], rows: NDArray[np.int64]) -> None:
        """Adds numbers that are unknown so far, each once."""
        if not numbers.size:
            return
        self._runs.append(_ordered(numbers, rows))
        while len(self._runs) > 1 and self._runs[-2][0].size < 2 * self._runs[-1][0].size:
            last, before = self._runs.pop(), self._runs.pop()
            merged = (np.concatenate(pair) for pair in zip(before, last, strict=True))
            self._runs.append(_ordered(*merged))


def _ordered(
    numbers: NDArray[np.uint64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    order = np.argsort(numbers, kind="stable")
    return numbers[order], rows[order]
