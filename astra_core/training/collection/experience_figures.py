"""Figures on an experience, for the log."""

import math
from collections.abc import Sequence
from typing import Any

from astra_core.extensions.calls import noted
from astra_core.metrics.attack import mean_kl_nats
from astra_core.metrics.reply_signal import reply_signal
from astra_core.rollout import Graph


def noted_figures(kind: str, plugin: Any, graphs: Sequence[Graph]) -> dict[str, float]:
    """The figures of a part about an experience, under the part's area of the log."""
    area = "train" if kind == "algorithm" else kind
    figures = noted(kind, plugin, graphs)
    return {f"{area}/{name}": value for name, value in figures.items()}


def experience_figures(graphs: Sequence[Graph], num_steps: int) -> dict[str, float]:
    """Means over the turns that were judged, and counts."""
    nodes = [node for graph in graphs for node in graph.nodes()]
    alive = [node for node in nodes if node.is_judged]
    count = max(len(alive), 1)
    known = {"kl_nats": mean_kl_nats(alive), "reply_signal": reply_signal(graphs)}
    return {
        "rollout/reward": sum(node.reward for node in alive) / count,
        "rollout/score": sum(node.score for node in alive) / count,
        "rollout/probe_score": sum(node.probe_score for node in alive) / count,
        "rollout/novelty": sum(node.novelty for node in alive) / count,
        "rollout/target_nll": sum(node.target_nll for node in alive) / count,
        "rollout/probe_tokens": sum(len(node.probe_ids) for node in alive) / count,
        "rollout/num_nodes": float(len(nodes)),
        "rollout/num_replies": float(sum(len(node.response_scores) for node in nodes)),
        "rollout/num_failed": float(sum(node.has_failed for node in nodes)),
        "rollout/num_unjudged": float(sum(node.is_unjudged for node in nodes)),
        "rollout/num_steps": float(num_steps),
        **{
            f"rollout/{name}": value
            for name, value in known.items()
            if value is not None and not math.isnan(value)
        },
    }
