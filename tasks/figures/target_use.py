"""What an evaluation used of a remote target, and the cost of one success."""

import math
from typing import TYPE_CHECKING

from astra_core.config import SystemConfiguration
from astra_core.registry import find

if TYPE_CHECKING:
    from astra_core.evaluator import Evaluation
    from astra_core.target import Target


def target_note(system: SystemConfiguration) -> dict[str, str] | None:
    """Digest and name of a target without weights here; None for one with weights."""
    from astra_core.target import Surroundings

    found = find("target", system.target)
    if found.plugin.has_weights:
        return None
    target: Target = found.build(surroundings=Surroundings(system))
    return {"digest": target.digest(), "name": target.spelled() or found.name}


def target_figures(target: "Target", found: "Evaluation") -> dict[str, float]:
    """Figures of the target's account as ``target_...``; none for a local target.

    If its calls have a price, ``target_cost_per_success`` is among them: NaN without a success.
    """
    used = target.figures()
    figures = {f"target_{name}": value for name, value in used.items()}
    if "cost" in used:
        successes = sum(
            outcome.success_rate * sum(1 for _ in graph.paths())
            for outcome, graph in zip(found.outcomes, found.graphs, strict=True)
        )
        figures["target_cost_per_success"] = used["cost"] / successes if successes else math.nan
    return figures
