"""Which of many numbers were there before, and in which row, at sixteen bytes for each."""

import numpy as np
from numpy.typing import NDArray


class KnownNumbers:
    """Numbers and the row each was first in; takes and answers whole batches.

    A dictionary of Python numbers takes ten times the memory. The numbers are in sorted runs; runs
    of similar length are merged, so there are few of them and each number is moved seldom.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[NDArray[np.uint64], NDArray[np.int64]]] = []

    def rows(self, numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The row of each number; -1 for one that is not known."""
        found = np.full(numbers.size, -1, np.int64)
        for known, rows in self._runs:
            places = np.minimum(np.searchsorted(known, numbers), known.size - 1)
            is_here = known[places] == numbers
            found[is_here] = rows[places[is_here]]
        return found

    def add(self, numbers: NDArray[np.uint64], rows: NDArray[np.int64]) -> None:
        """Takes numbers that are not known yet, each once."""
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
