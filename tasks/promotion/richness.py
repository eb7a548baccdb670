"""How many strategies two attackers have in equally many hits, with the error of the difference.

Prompts are divided into blocks. In each block both are rarefied to the same number of hits, so
blocks are independent measurements of one figure, and a t-test applies to their differences.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from astra_parts.metrics.rarefaction import expected_kinds
from tasks.promotion.paired import Paired, t_test

NUM_BLOCKS = 20
MAX_HITS = 25
MIN_HITS = 5
"""Hits that a block needs: with fewer, nearly every hit is a strategy of its own."""


@dataclass(frozen=True, slots=True)
class Richness:
    """Expected strategies among ``num_hits`` hits of each block."""

    candidate: Sequence[float]
    champion: Sequence[float]
    num_hits: int

    def test(self, ratio: float) -> Paired:
        """The paired test of the candidate's figure minus ``ratio`` times the other's."""
        return t_test(np.array(self.candidate) - ratio * np.array(self.champion), imagined=False)

    def describe(self) -> str:
        """Both figures in one clause."""
        own, other = float(np.mean(self.candidate)), float(np.mean(self.champion))
        return f"strategies {own:.1f} against {other:.1f} in {self.num_hits} hits"


def richness_of(
    candidate: Sequence[Sequence[int]], champion: Sequence[Sequence[int]]
) -> Richness | None:
    """The strategies of both; None if a block has too few hits."""
    num_blocks = min(NUM_BLOCKS, len(candidate))
    if num_blocks < 2:
        return None
    blocks = np.array_split(np.arange(len(candidate)), num_blocks)
    counts = [
        [[*Counter(one for at in block for one in labels[at]).values()] for block in blocks]
        for labels in (candidate, champion)
    ]
    num_hits = min(MAX_HITS, *(sum(block) for own in counts for block in own))
    if num_hits < MIN_HITS:
        return None
    own, other = ([expected_kinds(block, num_hits) for block in each] for each in counts)
    return Richness(own, other, num_hits)
