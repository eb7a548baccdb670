"""How much of the differences between siblings is due to the probes, not to random replies.

If the target's answers do not depend on what it reads, siblings still differ by their random
replies: an algorithm then learns from noise, and no step size helps.
"""

from collections.abc import Sequence
from statistics import fmean, variance

from astra_core.rollout import Graph, Node

FAINT = 0.2
"""Below this, random replies account for at least four fifths of siblings' differences."""

_NONE = 0.01


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


def missing_signal(graphs: Sequence[Graph], *, threshold: float) -> str:
    """What rollouts lack to be learned from, with what to change; empty where they lack nothing."""
    scores = [node.score for graph in graphs for node in graph.nodes() if node.is_judged]
    signal = reply_signal(graphs)
    # A graded judge gives a slope to climb before the first success.
    has_slope = signal is not None and signal >= FAINT
    if not scores or (max(scores) < threshold and not has_slope):
        return (
            f"none of {len(scores)} turns with a success, nor scores that the probes explain; name "
            "another judge in system.scorer, lower evaluation.threshold, or begin with prompts "
            "closer to the goal"
        )
    if min(scores) == max(scores):
        return f"the same score for all {len(scores)} turns; name a stricter judge in system.scorer"
    if signal is not None and signal < _NONE:
        return (
            "siblings that differ by the draw of their replies alone; raise "
            "rollouts.sampler.options.num_responses, or see whether the target reacts to what it "
            "reads at all"
        )
    return ""


def faint_signal(signal: float | None) -> str:
    """A sentence about a signal close to 0, with the way out; else empty.

    Source: How many times the replies make half of the variance the probes' own: Spearman (1910)
    and Brown (1910), British Journal of Psychology 3.
    """
    if signal is None or signal >= FAINT:
        return ""
    told = (
        f"the probes account for {max(signal, 0.0):.0%} of what set siblings apart at first "
        "(rollout/reply_signal), the draw of replies for the rest, so what is learned is mostly "
        "chance; raise rollouts.sampler.options.num_responses"
    )
    if signal < _NONE:
        return f"{told}, or see whether the target reacts to what it reads at all"
    return f"{told} ({(1.0 - signal) / signal:.0f} times as many would make it half)"


def _variance_of_mean(node: Node) -> float:
    scores = node.judged_scores
    return variance(scores) / len(scores)
