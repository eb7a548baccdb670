"""Near-duplicate groups of prompts in linear time: MinHash, banding, then a check of each pair.

Two prompts are near duplicates when their sets of three-word runs overlap by at least 0.8
(Jaccard). Candidates share one band of a MinHash signature (Broder, 1997; banding as in Leskovec,
Rajaraman and Ullman, "Mining of Massive Datasets", section 3.4); a candidate is checked against the
first row of its band only, so the work grows with the number of rows, not with its square.
"""

import os
import re
import zlib
from collections.abc import Iterable
from os import SEEK_END
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

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
    """Collects rows and says which of them are near duplicates.

    The data of a row, about 0.3 kB, are in unnamed files, which vanish with the finder or its
    process. Memory holds one byte per row, and about forty while the roots are computed.

    ``folder``: the folder of the files; None is the machine's temporary folder.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._bands = [_spool(folder) for _ in range(_BANDS)]
        self._sketches = _spool(folder)
        self._sizes = bytearray()

    def add(self, texts: Iterable[str]) -> None:
        """Takes the next rows; fastest in batches of thousands."""
        runs = [word_runs(text) for text in texts]
        if runs:
            sketches = [run[:_SKETCH] for run in runs]
            self._sketches.seek(0, SEEK_END)
            self._sketches.write(np.concatenate(sketches).tobytes())
            self._sizes.extend(sketch.size for sketch in sketches)
            for band, keys in zip(self._bands, _band_keys(runs).T, strict=True):
                band.seek(0, SEEK_END)
                band.write(keys.tobytes())

    def roots(self) -> NDArray[np.int64]:
        """For every row the number of the first row of its group; its own if it is alone.

        Appending rows to a file keeps the roots of the earlier ones, unless a new row is a near
        duplicate of two groups and so joins them.
        """
        self._sketches.flush()
        sizes = np.array(self._sizes, np.uint8)
        ends = np.cumsum(sizes, dtype=np.int64)
        parents = np.arange(sizes.size, dtype=np.int64)
        for band in self._bands:
            band.seek(0)
            leaders = _first_of_equals(np.frombuffer(band.read(), np.uint64))
            for row in np.flatnonzero(leaders != np.arange(leaders.size)).tolist():
                one, other = _root(parents, int(leaders[row])), _root(parents, row)
                if one != other and self._are_near(int(leaders[row]), row, ends):
                    parents[max(one, other)] = min(one, other)
        # A parent is never later than its child; each pass halves the distance to the root.
        while not np.array_equal(above := parents[parents], parents):
            parents = above
        return parents

    def _are_near(self, leader: int, row: int, ends: NDArray[np.int64]) -> bool:
        one, other = (self._sketch(number, ends) for number in (leader, row))
        return overlap(one, other) >= MIN_OVERLAP

    def _sketch(self, row: int, ends: NDArray[np.int64]) -> NDArray[np.uint32]:
        size = self._sizes[row]
        first = int(ends[row]) - size
        width = np.dtype(np.uint32).itemsize
        found = os.pread(self._sketches.fileno(), size * width, first * width)
        return np.frombuffer(found, np.uint32)


def word_runs(text: str) -> NDArray[np.uint32]:
    """Sorted hashes of the text's three-word runs; case, punctuation and spacing do not count."""
    words = _WORD.findall(text.lower())
    if len(words) < _RUN_WORDS:
        # Too short for runs: the words as a whole, or the text itself if it has no word.
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


def _spool(folder: Path | None) -> IO[bytes]:
    return TemporaryFile(dir=folder)


def _first_of_equals(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """For every key the index of the first equal key."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    is_first = np.ones(keys.size, bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    leaders = np.empty(keys.size, np.int64)
    leaders[order] = np.repeat(
        order[is_first], np.diff(np.append(np.flatnonzero(is_first), keys.size))
    )
    return leaders


def _root(parents: NDArray[np.int64], row: int) -> int:
    while parents[row] != row:
        parents[row] = parents[parents[row]]
        row = int(parents[row])
    return row
