"""What rollouts lack to be learned from, in words."""

from collections.abc import Mapping, Sequence

from astra_core.metrics.reply_signal import reply_signal, times_the_replies
from astra_core.rollout import Graph

FAINT = 0.2
"""Below this, random replies account for at least four fifths of siblings' differences."""
_NONE, _HALF = 0.01, 0.5


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


def signal_doubts(figures: Mapping[str, float]) -> list[str]:
    """What keeps an attacker from learning from such rollouts, with what to change."""
    # A sampler that chooses the number of replies makes up for them.
    chosen = "sampler/num_responses" in figures
    told = "" if chosen else faint_signal(figures.get("rollout/reply_signal"), _HALF)
    doubts = [told] if told else []
    if (share := figures.get("rollout/score_share", 1.0)) < _HALF:
        doubts.append(
            f"scores account for {share:.0%} of what sets siblings' rewards apart "
            "(rollout/score_share); give the other terms of the reward less weight"
        )
    return doubts


def faint_signal(signal: float | None, bound: float = FAINT) -> str:
    """A sentence about a signal below ``bound``, with the way out; else empty."""
    if signal is None or signal >= bound:
        return ""
    told = (
        f"the probes account for {max(signal, 0.0):.0%} of what set siblings apart at first "
        "(rollout/reply_signal), the draw of replies for the rest, so what is learned is mostly "
        "chance; raise rollouts.sampler.options.num_responses"
    )
    if signal < _NONE:
        return f"{told}, or see whether the target reacts to what it reads at all"
    times = times_the_replies(signal, share=_HALF)
    return f"{told} ({times:.1f} times as many would make it half), or set max_responses beside it"
