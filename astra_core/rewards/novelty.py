"""A memory of earlier probes, as counts of hashed word n-grams in bounded size."""

import math
import zlib
from collections import Counter
from collections.abc import Sequence

import torch

from astra_core.metrics.diversity import words


class NoveltyMemory:
    """Counts word 2- and 3-grams; the rarer a text's n-grams, the more novel it is.

    The bonus of an n-gram seen ``n`` times is ``1 / sqrt(1 + n)``, the count-based exploration
    bonus of Bellemare et al. (arXiv:1606.01868), and a text's novelty is the mean over its
    n-grams. N-grams are hashed into a table of fixed size by CRC-32, which is the same in every
    process.
    """

    def __init__(self, *, decay: float, num_bins: int = 1 << 16) -> None:
        self.counts = torch.zeros(num_bins, dtype=torch.float64)
        self._decay = decay

    def novelties(self, texts: Sequence[str]) -> list[float]:
        """One number in (0, 1] per text; texts of one batch count against each other."""
        grams = [self._bins(text) for text in texts]
        together = Counter(bin_ for own in grams for bin_ in set(own))
        return [self._novelty(own, together) for own in grams]

    def add(self, texts: Sequence[str]) -> None:
        """Decays the older counts and adds these texts."""
        self.counts.mul_(self._decay)
        for text in texts:
            for bin_ in set(self._bins(text)):
                self.counts[bin_] += 1.0

    def _novelty(self, bins: list[int], together: Counter[int]) -> float:
        seen = self.counts[bins].tolist()
        bonuses = [
            1.0 / math.sqrt(1.0 + before + together[bin_] - 1)
            for bin_, before in zip(bins, seen, strict=True)
        ]
        return sum(bonuses) / len(bonuses)

    def _bins(self, text: str) -> list[int]:
        return [zlib.crc32(gram.encode()) % len(self.counts) for gram in self.grams(text)]

    def grams(self, text: str) -> list[str]:
        """The n-grams that count, words separated by a space; ``^`` and ``$`` are the ends."""
        return ngrams_of(text)


def ngrams_of(text: str) -> list[str]:
    """Every word 2- and 3-gram of a text, its beginning ``^`` and end ``$`` included."""
    said = ["^", *words(text), "$"]
    return [" ".join(said[i : i + n]) for n in (2, 3) for i in range(len(said) - n + 1)]
