"""Rows of an evaluation's table, one per prompt; they hold no text."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from astra_parts.metrics.invented_words import InventedWords
from tasks.records.evaluation import CONFIRMED, NONWORDS

if TYPE_CHECKING:
    from astra_core.evaluator import Evaluation

STRATEGIES = "hit_strategies"
"""The column with the strategy of each hit, numbered within the attacker."""
ASKED = "strategies_asked"
"""The column that says whether the target was asked for them; else they are by shared words."""


def prompt_rows(
    evaluation: "Evaluation", role: str, *, invented: InventedWords
) -> list[dict[str, Any]]:
    """A row per prompt: role, outcome, strategies of its hits, share of invented words."""
    is_asked = evaluation.figures["strategy_hits_asked"] > 0
    told = zip(evaluation.outcomes, evaluation.strategies, evaluation.graphs, strict=True)
    rows = [
        {
            "role": role,
            **asdict(outcome),
            STRATEGIES: list(own),
            ASKED: is_asked,
            NONWORDS: invented.share(graph),
        }
        for outcome, own, graph in told
    ]
    if not evaluation.confirmed:
        return rows
    confirmed = zip(rows, evaluation.confirmed, strict=True)
    return [row | {CONFIRMED: rate} for row, rate in confirmed]
