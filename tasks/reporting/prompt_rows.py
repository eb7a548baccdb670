"""Rows of an evaluation's table, one per prompt; they hold no text."""

from collections.abc import Collection
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from astra_core.metrics.strategies import hit_strategies
from tasks.records.evaluation import CONFIRMED

if TYPE_CHECKING:
    from astra_core.evaluator import Evaluation

STRATEGIES = "hit_strategies"
"""The column with the strategy of each hit, numbered within the attacker."""


def prompt_rows(
    evaluation: "Evaluation", role: str, *, threshold: float, vocabulary: Collection[str]
) -> list[dict[str, Any]]:
    """A row per prompt: role, outcome, and the strategies of its hits.

    Args:
        evaluation: One attacker's evaluation.
        role: ``attacker`` or ``baseline``.
        threshold: A score at or above it is a success.
        vocabulary: Words that the run knows.
    """
    strategies = hit_strategies(evaluation.graphs, threshold=threshold, vocabulary=vocabulary)
    rows = [
        {"role": role, **asdict(outcome), STRATEGIES: own}
        for outcome, own in zip(evaluation.outcomes, strategies, strict=True)
    ]
    if not evaluation.confirmed:
        return rows
    confirmed = zip(rows, evaluation.confirmed, strict=True)
    return [row | {CONFIRMED: rate} for row, rate in confirmed]
