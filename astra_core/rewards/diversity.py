"""How rare the wording of a probe is among those that succeed in the same experience."""

import math
import sys
import zlib
from collections.abc import Container, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from astra_core.metrics.diversity import ngrams
from astra_core.rewards.known_words import words_of

_UNKNOWN = "_"
# Different texts that each is compared with; beyond, a sample of them stands for all.
_MAX_COMPARED = 4096
# Similarities that are in memory at a time.
_NUM_CELLS = 1 << 21

Features = frozenset[tuple[str, ...]]


def rarities(texts: Sequence[str], scores: Sequence[float], known: Container[str]) -> list[float]:
    """Nats by which each text is rare among those that score; 0 for a score of 0.

    ``-score * log(share)``, times the share of its words that are known. The share is that of all
    scores which texts like this one have, each counted by its similarity: the Jaccard index of
    words and word pairs. The mean over scores is the entropy of order 1 with similarity, which
    rises most with another way to succeed, less with a paraphrase. All unknown words are one word,
    so inventing some gains nothing. A longer text is rarer; the likelihood of a probe is the
    counterweight.

    ``scores``: of their replies, in [0, 1].

    Source: Leinster and Cobbold, "Measuring diversity: the importance of species similarity",
    Ecology 93 (2012). A reward that similar individuals share: Goldberg and Richardson, "Genetic
    algorithms with sharing for multimodal function optimization", ICGA 1987.
    """
    masked = [[word if word in known else _UNKNOWN for word in words_of(text)] for text in texts]
    features = [frozenset([*ngrams(own, 1), *ngrams(own, 2)]) for own in masked]
    weights: dict[Features, float] = {}
    for own, score in zip(features, scores, strict=True):
        if score > 0.0:
            weights[own] = weights.get(own, 0.0) + score
    shares = _shares(weights)
    return [
        -score * math.log(shares[own]) * _known_share(said) if score > 0.0 else 0.0
        for own, said, score in zip(features, masked, scores, strict=True)
    ]


def _shares(weights: Mapping[Features, float]) -> dict[Features, float]:
    """For each set the weighted mean of its Jaccard similarity to all of them, in (0, 1]."""
    from scipy.sparse import csr_array

    if not weights:
        return {}
    column = {gram: i for i, gram in enumerate(sorted(frozenset().union(*weights)))}
    cells = [(row, column[gram]) for row, own in enumerate(weights) for gram in own]
    rows, columns = np.array(sorted(cells), dtype=np.int64).reshape(-1, 2).T
    has = csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(weights), len(column) or 1))
    sizes, weight = has.sum(axis=1), np.array(list(weights.values()))
    chosen = _sample_of(list(weights))
    num_rows = max(1, _NUM_CELLS // len(chosen))
    found: list[float] = []
    for start in range(0, len(weights), num_rows):
        block = np.arange(start, min(start + num_rows, len(weights)))
        common = (has[block] @ has[chosen].T).toarray()
        either = sizes[block, None] + sizes[None, chosen] - common
        # Texts without a word are like each other alone.
        alike = np.where(either > 0.0, common / np.maximum(either, 1.0), 1.0)
        own = np.where(np.isin(block, chosen), 0.0, weight[block])
        share = (alike @ weight[chosen] + own) / (weight[chosen].sum() + own)
        found.extend(np.clip(share, sys.float_info.min, 1.0).tolist())
    return dict(zip(weights, found, strict=True))


def _sample_of(features: Sequence[Features]) -> NDArray[np.int64]:
    """The places of all sets, or of a sample that depends on nothing but the sets."""
    if len(features) <= _MAX_COMPARED:
        return np.arange(len(features))
    digests = [zlib.crc32(repr(sorted(own)).encode()) for own in features]
    return np.sort(np.argsort(digests, kind="stable")[:_MAX_COMPARED])


def _known_share(said: Sequence[str]) -> float:
    return sum(word != _UNKNOWN for word in said) / max(len(said), 1)
