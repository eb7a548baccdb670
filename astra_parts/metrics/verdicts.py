"""Verdicts of a judge and a second one on turns and replies of rollouts: flagged or passed."""

import math
from collections.abc import Mapping, Sequence

from astra_core.rollout import Graph, Node, Path
from astra_parts.metrics.agreement import Pair
from astra_parts.metrics.correction import Verdicts

Scores = Mapping[Path, tuple[float | None, ...]]
"""A second judge's scores of the replies of each turn; None where it gave none."""


def reply_verdicts(graph: Graph, *, threshold: float) -> list[Verdicts] | None:
    """The verdict on each judged reply; None if a reply is missing because of the judge."""
    nodes = list(graph.nodes())
    scores = [score for node in nodes for score in node.response_scores if score is not None]
    if not scores and any(node.is_unjudged for node in nodes):
        return None
    return [(score >= threshold,) for score in scores]


def turn_verdicts(graph: Graph, *, threshold: float) -> list[Verdicts] | None:
    """The verdicts on the judged turns of each rollout; None where no rollout has one.

    A rollout in which the judge could judge nothing is left out, as in ``prompt_outcome``.
    """
    paths = _known_paths(graph)
    if not paths:
        return None
    return [tuple(node.score >= threshold for node in path if node.is_judged) for path in paths]


def confirmed_rate(
    graph: Graph, second: Scores, *, threshold: float, second_threshold: float
) -> float:
    """Share of rollouts in which both judges flag the same turn; NaN where none was judged.

    A turn counts by the mean score of its replies. A turn that the second judge could not judge is
    not confirmed.
    """

    def is_confirmed(node: Node) -> bool:
        if not (node.is_judged and node.score >= threshold):
            return False
        known = [score for score in second.get(node.path, ()) if score is not None]
        return bool(known) and math.fsum(known) / len(known) >= second_threshold

    paths = _known_paths(graph)
    if not paths:
        return math.nan
    return sum(any(map(is_confirmed, path)) for path in paths) / len(paths)


def verdict_pairs(
    graph: Graph, second: Scores, *, threshold: float, second_threshold: float
) -> list[Pair]:
    """The verdicts of both judges on every reply that both judged."""
    scores = [
        pair
        for node in graph.nodes()
        for pair in zip(node.response_scores, second.get(node.path, ()), strict=False)
    ]
    return [
        (own >= threshold, other >= second_threshold)
        for own, other in scores
        if own is not None and other is not None
    ]


def num_unjudged(seconds: Sequence[Scores]) -> int:
    """Number of replies without a score from the second judge."""
    scores = [score for second in seconds for own in second.values() for score in own]
    return sum(score is None for score in scores)


def _known_paths(graph: Graph) -> list[tuple[Node, ...]]:
    """The rollouts with at least one turn that was judged or failed."""
    return [path for path in graph.paths() if not all(node.is_unjudged for node in path)]
