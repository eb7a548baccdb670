"""How much of the differences between siblings is due to the probes, not to random replies.

If the target's answers do not depend on what it reads, siblings still differ by their random
replies: an algorithm then learns from noise, and no step size helps.
"""

import math
from collections.abc import Sequence
from statistics import correlation, fmean, variance

from astra_core.rollout import Graph, Node

_ROUNDING = 1e-9


def reply_signal(graphs: Sequence[Graph]) -> float | None:
    """Share of the variance of siblings' mean scores that the probes account for, at most 1.

    It is 1 minus the variance that the draw of the replies alone gives to a mean, over the variance
    that means have within groups of siblings: the reliability of a one-way analysis of variance.
    A value near 0, or below by chance, means that the probe makes no difference.

    Returns None where it cannot be known: no two siblings have two judged replies each, or all have
    the same score.

    Source: Shrout and Fleiss, Psychological Bulletin 86 (1979), ICC(1, k).
    """
    spreads, noises = list[float](), list[float]()
    for graph in graphs:
        for group in graph.groups():
            siblings = [node for node in group if node.is_judged and len(node.judged_scores) > 1]
            if len(siblings) > 1:
                spreads.append(variance(node.score for node in siblings))
                noises.append(fmean(_variance_of_mean(node) for node in siblings))
    spread = fmean(spreads) if spreads else 0.0
    return 1.0 - fmean(noises) / spread if spread > 0.0 else None


def times_the_replies(signal: float, *, share: float) -> float:
    """How many times as many replies make the probes account for ``share``; signal above 0.

    Source: Spearman (1910) and Brown (1910), British Journal of Psychology 3.
    """
    return share / (1.0 - share) * (1.0 - signal) / signal


def replies_for(signal: float, num_replies: int, *, share: float, at_most: int) -> int:
    """How many replies make the probes account for ``share``; ``num_replies`` gave the signal."""
    if signal <= 0.0:
        return at_most
    needed = num_replies * times_the_replies(signal, share=share)
    return min(max(math.ceil(needed - _ROUNDING), 1), at_most)


def score_share(graphs: Sequence[Graph]) -> float | None:
    """Share of the variance of siblings' rewards that their scores account for, from 0 to 1.

    The squared correlation of reward and score within groups of siblings; the rest is due to other
    terms of the reward, such as the likelihood of the probe. None where no rewards differ.
    """
    scores, rewards = list[float](), list[float]()
    for group in (group for graph in graphs for group in graph.groups()):
        siblings = [node for node in group if node.is_judged]
        for node in siblings:
            scores.append(node.score - fmean(own.score for own in siblings))
            rewards.append(node.reward - fmean(own.reward for own in siblings))
    if max(map(abs, rewards), default=0.0) < _ROUNDING:
        return None
    is_told = max(map(abs, scores)) > _ROUNDING
    return correlation(scores, rewards) ** 2 if is_told else 0.0


def _variance_of_mean(node: Node) -> float:
    scores = node.judged_scores
    return variance(scores) / len(scores)
