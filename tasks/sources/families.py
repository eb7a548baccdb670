"""Near-duplicate groups of prompts in linear time: MinHash, banding, then a check of each pair.

Two prompts are near duplicates when their sets of three-word runs overlap by at least 0.8
(Jaccard). Candidates share one band of a MinHash signature (Broder, 1997; banding as in Leskovec,
Rajaraman and Ullman, "Mining of Massive Datasets", section 3.4); a candidate is checked against the
first row of its band only, so the work grows with the number of rows, not with its square.
"""

import re
import zlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

MIN_OVERLAP = 0.8

_RUN_WORDS = 3
# 8 bands of 4 hashes find 98 % of the pairs that overlap by 0.8, and 0.4 % of those at 0.15.
_BANDS = 8
_HASHES_PER_BAND = 4
# Up to this many runs a pair is compared exactly, above it by its smallest hashes.
_SKETCH = 64
_WORD = re.compile(r"[^\W_]+")

_generator = np.random.Generator(np.random.Philox(key=20240917))
_FACTORS = _generator.integers(1, 2**63, size=_BANDS * _HASHES_PER_BAND, dtype=np.uint64) * 2 + 1
_SHIFTS = _generator.integers(0, 2**63, size=_BANDS * _HASHES_PER_BAND, dtype=np.uint64)
_MIXERS = _generator.integers(1, 2**63, size=_HASHES_PER_BAND, dtype=np.uint64) * 2 + 1


class FamilyFinder:
    """Collects rows and says which of them are near duplicates; about 0.4 kB per row."""

    def __init__(self) -> None:
        self._bands: list[NDArray[np.uint64]] = []
        self._sketches: list[NDArray[np.uint32]] = []

    def add(self, texts: Iterable[str]) -> None:
        """Takes the next rows; cheapest in batches of thousands."""
        runs = [word_runs(text) for text in texts]
        if runs:
            # Copied: a slice would keep the whole of a long text's runs alive.
            self._sketches.extend(run[:_SKETCH].copy() for run in runs)
            self._bands.append(_band_keys(runs))

    def roots(self) -> NDArray[np.int64]:
        """For every row the number of the first row of its group; its own when it is alone.

        Appending rows to a file keeps the roots of the earlier ones, unless a new row is a near
        duplicate of two groups and so makes them one.
        """
        parents = np.arange(len(self._sketches), dtype=np.int64)
        if not self._bands:
            return parents
        bands = np.concatenate(self._bands)
        for band in range(_BANDS):
            _, first, group = np.unique(bands[:, band], return_index=True, return_inverse=True)
            leaders = first[group]
            for row in np.flatnonzero(leaders != np.arange(leaders.size)).tolist():
                self._join(parents, int(leaders[row]), row)
        # A parent is never later than its child, so one pass in order reaches every root.
        for row in range(parents.size):
            parents[row] = parents[parents[row]]
        return parents

    def _join(self, parents: NDArray[np.int64], leader: int, row: int) -> None:
        one, other = _root(parents, leader), _root(parents, row)
        if one != other and overlap(self._sketches[leader], self._sketches[row]) >= MIN_OVERLAP:
            parents[max(one, other)] = min(one, other)


def word_runs(text: str) -> NDArray[np.uint32]:
    """Sorted hashes of the text's three-word runs; case, punctuation and spacing do not count."""
    words = _WORD.findall(text.lower())
    if len(words) < _RUN_WORDS:
        # Too short for runs: the words as a whole, or the bare text when it holds no word.
        whole = " ".join(words) or text
        return np.array([zlib.crc32(whole.encode())], dtype=np.uint32)
    runs = zip(words, words[1:], words[2:], strict=False)
    return np.unique(np.array([zlib.crc32(" ".join(run).encode()) for run in runs], np.uint32))


def overlap(one: NDArray[np.uint32], other: NDArray[np.uint32]) -> float:
    """Jaccard index of two sets of runs; estimated from the smallest hashes of long ones."""
    union = np.union1d(one, other)
    if max(one.size, other.size) == _SKETCH:
        union = union[:_SKETCH]
    shared = np.intersect1d(one, other, assume_unique=True)
    return float(np.isin(union, shared, assume_unique=True).mean())


def _band_keys(runs: list[NDArray[np.uint32]]) -> NDArray[np.uint64]:
    """One key per row and band, shape [rows, bands]; equal keys make candidates."""
    starts = np.cumsum([0] + [run.size for run in runs[:-1]])
    flat = np.concatenate(runs).astype(np.uint64)
    keys = np.zeros((len(runs), _BANDS), dtype=np.uint64)
    # One hash function at a time keeps the memory at one number per run of the batch.
    for number in range(_BANDS * _HASHES_PER_BAND):
        hashed = (flat * _FACTORS[number] + _SHIFTS[number]) >> np.uint64(32)
        smallest = np.minimum.reduceat(hashed, starts)
        keys[:, number // _HASHES_PER_BAND] += smallest * _MIXERS[number % _HASHES_PER_BAND]
    return keys


def _root(parents: NDArray[np.int64], row: int) -> int:
    while parents[row] != row:
        parents[row] = parents[parents[row]]
        row = int(parents[row])
    return row
