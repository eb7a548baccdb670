"""Attack success of both attackers, and the gain, by category of the prompts."""

from collections.abc import Sequence
from typing import Any

from astra_parts.metrics.categories import means_by_label
from tasks.records.evaluation import CategoryRates


def category_rates(
    labels: Sequence[str],
    *,
    attacker: Sequence[float],
    baseline: Sequence[float],
    num_resamples: int,
    confidence: float,
    seed: int,
) -> dict[str, CategoryRates]:
    """The rates for each label, most prompts first; none where the prompts have no labels.

    Args:
        labels: One per prompt, or none at all.
        attacker: Success rate of each prompt by the trained attacker.
        baseline: The same for the untrained attacker.
        num_resamples: Resamples of the bootstrap.
        confidence: Probability inside an interval.
        seed: Same seed, same intervals.
    """
    if not labels:
        return {}
    gains = [after - before for after, before in zip(attacker, baseline, strict=True)]
    how: dict[str, Any] = {
        "num_resamples": num_resamples,
        "confidence": confidence,
        "seed": seed,
    }
    rates, before = (
        means_by_label(labels, values, are_rates=True, **how) for values in (attacker, baseline)
    )
    lifts = means_by_label(labels, gains, **how)
    return {
        label: CategoryRates(
            num_prompts=labels.count(label),
            attacker=rates[label],
            baseline=before[label],
            lift=lifts[label],
        )
        for label in rates
    }
