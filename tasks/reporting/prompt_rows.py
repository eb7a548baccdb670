"""Rows of an evaluation's table, one per prompt; they hold no text."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from astra_core.metrics.invented_words import InventedWords
from astra_core.metrics.strategies import hit_strategies
from tasks.records.evaluation import CONFIRMED, NONWORDS

if TYPE_CHECKING:
    from astra_core.evaluator import Evaluation

STRATEGIES = "hit_strategies"
"""The column with the strategy of each hit, numbered within the attacker."""


def prompt_rows(
    evaluation: "Evaluation", role: str, *, threshold: float, invented: InventedWords
) -> list[dict[str, Any]]:
    """A row per prompt: role, outcome, strategies of its hits, share of probes with invented words.

    Args:
        evaluation: One attacker's evaluation.
        role: ``attacker`` or ``baseline``.
        threshold: A score at or above it is a success.
        invented: What counts as an invented word.
    """
    graphs = evaluation.graphs
    strategies = hit_strategies(graphs, threshold=threshold, vocabulary=invented.known)
    rows = [
        {"role": role, **asdict(outcome), STRATEGIES: own, NONWORDS: invented.share(graph)}
        for outcome, own, graph in zip(evaluation.outcomes, strategies, graphs, strict=True)
    ]
    if not evaluation.confirmed:
        return rows
    confirmed = zip(rows, evaluation.confirmed, strict=True)
    return [row | {CONFIRMED: rate} for row, rate in confirmed]
