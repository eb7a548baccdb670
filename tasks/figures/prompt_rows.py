"""Rows of an evaluation by prompt, without text, and what the target was used for."""

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from astra_core.config import SystemConfiguration
from astra_core.registry import find
from astra_core.target import Surroundings, Target, checked_digest, checked_figures
from astra_parts.metrics.invented_words import InventedWords
from tasks.params.targets import has_weights
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
    told = zip(
        evaluation.outcomes,
        evaluation.by_prompt(evaluation.strategies),
        evaluation.prompt_means([invented.share(graph) for graph in evaluation.graphs]),
        strict=True,
    )
    rows = [
        {
            "role": role,
            **asdict(outcome),
            STRATEGIES: [way for each in own for way in each],
            ASKED: is_asked,
            NONWORDS: share,
        }
        for outcome, own, share in told
    ]
    for name in evaluation.weights:
        for row, outcome in zip(rows, evaluation.against(name), strict=True):
            row[f"success_rate_{name}"] = outcome.success_rate
    if not evaluation.confirmed:
        return rows
    confirmed = zip(rows, evaluation.confirmed, strict=True)
    return [row | {CONFIRMED: rate} for row, rate in confirmed]


def target_note(system: SystemConfiguration) -> dict[str, str] | None:
    """Digest and name of a target without weights here; None for one with weights."""
    found = find("target", system.target)
    if has_weights(system.target):
        return None
    target: Target = found.build(surroundings=Surroundings(system))
    return {"digest": checked_digest(target), "name": target.spelled() or found.name}


def target_figures(target: "Target", found: "Evaluation") -> dict[str, float]:
    """Figures of the target's account as ``target_...``; none for a local target.

    If its calls have a price, ``target_cost_per_success`` is among them: NaN without a success.
    """
    used = checked_figures(target)
    figures = {f"target_{name}": value for name, value in used.items()}
    if "cost" in used:
        successes = sum(
            outcome.success_rate * sum(1 for _ in graph.paths())
            for outcome, graph in zip(found.each, found.graphs, strict=True)
        )
        figures["target_cost_per_success"] = used["cost"] / successes if successes else math.nan
    return figures
