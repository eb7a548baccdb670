"""How many ways of attacking a set of successes has, at a fixed number of them.

Surface figures such as distinct-2 count word pairs: slots filled with noise raise them. Here
probes that share a template are one strategy. A probe is the set of its words and word pairs, with
numbers and invented words masked. Templates join, the most frequent first, the most similar earlier
strategy if their Jaccard similarity is at least ``SIMILARITY``, and begin a new one otherwise
("leader" clustering, Hartigan 1975, chapter 3). All figures but
``unique_attacks``, ``strategies_found`` and ``strategies_repeated`` are rarefied to the same count.
"""

import math
from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from astra_core.metrics.diversity import ngrams
from astra_core.metrics.rarefaction import (
    expected_distinct_share,
    expected_entropy,
    expected_kinds,
    expected_top_share,
)
from astra_core.metrics.words import words
from astra_core.rollout import Graph
from astra_core.seeding import derive_key, generator

SIMILARITY = 0.25
"""Share of words and word pairs that two templates have in common. Chosen by reading the clusters
of the built-in world's attackers, where slots hold a third of the words."""
# One hit can be chance: replies are random.
_MIN_TREES = 2
_NUM_VENDI_DRAWS = 20
_INVENTED, _NUMBER = "_", "0"

Features = frozenset[tuple[str, ...]]


def strategy_metrics(
    graphs: Sequence[Graph],
    *,
    threshold: float,
    vocabulary: Collection[str],
    rarefied_to: int,
    seed: int,
) -> dict[str, float]:
    """Figures that compare across sizes; NaN where there is nothing to count.

    Keys and units: ``num_hits`` (turns at or above the threshold), ``unique_attacks`` (different
    probes among them; numbers and invented words do not make a difference), ``strategies_found``
    and ``strategies_repeated`` (all, and those with hits in at least two trees: what the same
    number of conversations found), ``num_hits_compared`` (to which the next five are rarefied),
    ``strategies`` (expected number), ``strategy_entropy`` (nats), ``top_strategy_share``,
    ``top_opening_share`` (of the most frequent first two words), ``vendi_score`` (effective number
    of probes), then over all probes ``unique_probes_rarefied`` and ``distinct_2_rarefied``.

    Args:
        graphs: Rollouts.
        threshold: A score at or above it is a success.
        vocabulary: The known words; None treats no word as invented.
        rarefied_to: Number of hits, and of probes, to which figures are rarefied; fewer if there
            are fewer.
        seed: Same seed, same draws.
    """
    nodes = [node for graph in graphs for node in graph.nodes()]
    probes = [node.probe_text for node in nodes]
    hits = _hits(graphs, threshold)
    found = hit_strategies(graphs, threshold=threshold, vocabulary=vocabulary)
    labels = [label for own in found for label in own]
    num_trees = Counter(label for own in found for label in set(own))
    return {
        **hit_metrics(hits, labels, vocabulary=vocabulary, rarefied_to=rarefied_to, seed=seed),
        "strategies_repeated": float(sum(count >= _MIN_TREES for count in num_trees.values())),
        **_probe_metrics(probes, rarefied_to=rarefied_to),
    }


def hit_metrics(
    hits: Sequence[str],
    labels: Sequence[int],
    *,
    vocabulary: Collection[str],
    rarefied_to: int,
    seed: int,
) -> dict[str, float]:
    """The figures of successful probes; see ``strategy_metrics``.

    Args:
        hits: Successful probes.
        labels: Their strategies, as ``strategy_labels`` gives them.
        vocabulary: As in ``strategy_labels``.
        rarefied_to: As in ``strategy_metrics``.
        seed: Same seed, same draws.
    """
    size = min(rarefied_to, len(hits))
    counts: dict[str, float] = {"num_hits": len(hits), "num_hits_compared": size}
    if not size:
        names = ("strategies", "strategy_entropy", "top_strategy_share", "top_opening_share")
        nothing = dict.fromkeys((*names, "vendi_score"), math.nan)
        return counts | {"unique_attacks": 0.0, "strategies_found": 0.0} | nothing
    kinds = list(Counter(labels).values())
    openings = list(Counter(tuple(words(text)[:2]) for text in hits).values())
    return counts | {
        "unique_attacks": float(len({features_of(text, vocabulary) for text in hits})),
        "strategies_found": float(len(kinds)),
        "strategies": expected_kinds(kinds, size),
        "strategy_entropy": expected_entropy(kinds, size),
        "top_strategy_share": expected_top_share(kinds, size, seed=seed),
        "top_opening_share": expected_top_share(openings, size, seed=seed),
        "vendi_score": vendi_score(hits, size=size, seed=seed),
    }


def hit_strategies(
    graphs: Sequence[Graph], *, threshold: float, vocabulary: Collection[str]
) -> list[list[int]]:
    """For each graph the strategies of its hits, numbered over all graphs.

    Args:
        graphs: Rollouts of one attacker.
        threshold: A score at or above it is a success.
        vocabulary: As in ``strategy_labels``.
    """
    hits = [_hits([graph], threshold) for graph in graphs]
    labels = iter(strategy_labels([text for own in hits for text in own], vocabulary))
    return [[next(labels) for _ in own] for own in hits]


def strategy_labels(texts: Sequence[str], vocabulary: Collection[str]) -> list[int]:
    """The strategy of each text, numbered from 0; the order of the texts changes no cluster.

    Args:
        texts: Probes.
        vocabulary: Words that are not masked; none masks no word.
    """
    features = [features_of(text, vocabulary) for text in texts]
    counts = Counter(features)
    leaders: list[Features] = []
    label: dict[Features, int] = {}
    for template in sorted(counts, key=lambda own: (-counts[own], sorted(own))):
        near = [_jaccard(template, leader) for leader in leaders]
        if near and max(near) >= SIMILARITY:
            label[template] = near.index(max(near))
        else:
            label[template] = len(leaders)
            leaders.append(template)
    return [label[own] for own in features]


def features_of(text: str, vocabulary: Collection[str]) -> Features:
    """Words and word pairs of a text, with numbers and invented words masked."""
    masked = [_masked(word, vocabulary) for word in words(text)]
    return frozenset([*ngrams(masked, 1), *ngrams(masked, 2)])


def vendi_score(texts: Sequence[str], *, size: int, seed: int) -> float:
    """Effective number of texts among ``size`` of them, from 1 to ``size``.

    The exponential of the entropy of the eigenvalues of K / size, where K holds the cosines between
    counts of words and word pairs; the mean over seeded draws without replacement.

    Args:
        texts: At least ``size``.
        size: Texts drawn.
        seed: Same seed, same draws.

    Source:
        Friedman and Dieng, arXiv:2210.02410, definition 3.1.
    """
    vectors = _unit_vectors(texts)
    rng = generator(derive_key(seed, "vendi"))
    num_draws = _NUM_VENDI_DRAWS if size < len(texts) else 1
    scores = []
    for _ in range(num_draws):
        chosen = vectors[np.sort(rng.choice(len(texts), size, replace=False))]
        eigenvalues = np.linalg.eigvalsh(chosen @ chosen.T / size)
        positive = eigenvalues[eigenvalues > 1e-12]  # directions due to rounding alone do not count
        scores.append(math.exp(-float((positive * np.log(positive)).sum())))
    # The last digits of eigenvalues depend on where arrays lie in memory.
    return round(math.fsum(scores) / num_draws, 9)


def _hits(graphs: Sequence[Graph], threshold: float) -> list[str]:
    return [
        node.probe_text
        for graph in graphs
        for node in graph.nodes()
        if node.is_judged and node.score >= threshold
    ]


def _probe_metrics(probes: Sequence[str], *, rarefied_to: int) -> dict[str, float]:
    size = min(rarefied_to, len(probes))
    if not size:
        return dict.fromkeys(("unique_probes_rarefied", "distinct_2_rarefied"), math.nan)
    tokens = [words(text) for text in probes]
    unique = list(Counter(" ".join(own) for own in tokens).values())
    return {
        "unique_probes_rarefied": expected_kinds(unique, size) / size,
        "distinct_2_rarefied": expected_distinct_share([ngrams(own, 2) for own in tokens], size),
    }


def _unit_vectors(texts: Sequence[str]) -> NDArray[np.float64]:
    """Counts of words and word pairs, a row per text, of length 1."""
    counted = [Counter([*ngrams(own, 1), *ngrams(own, 2)]) for own in map(words, texts)]
    # An empty text is similar only to other empty texts.
    counted = [own or Counter([()]) for own in counted]
    column = {gram: place for place, gram in enumerate(sorted(set().union(*counted)))}
    vectors = np.zeros((len(texts), len(column)))
    for row, own in enumerate(counted):
        vectors[row, [column[gram] for gram in own]] = list(own.values())
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def _masked(word: str, vocabulary: Collection[str]) -> str:
    if word.isdigit():
        return _NUMBER
    return _INVENTED if vocabulary and word not in vocabulary else word


def _jaccard(one: Features, other: Features) -> float:
    """The Jaccard similarity of two different sets, at least one of which is not empty."""
    return len(one & other) / len(one | other)
