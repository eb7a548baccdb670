"""Results by category for pages, tables and trackers."""

from collections.abc import Mapping, Sequence
from typing import Any

from astra_parts.metrics.categories import means_by_label
from tasks.records.evaluation import CategoryRates
from tasks.records.reports import csv_text


def category_rates(
    labels: Sequence[str],
    *,
    attacker: Sequence[float],
    baseline: Sequence[float],
    num_resamples: int,
    confidence: float,
    seed: int,
) -> dict[str, CategoryRates]:
    """The rates for each label, most prompts first; none where the prompts have no labels."""
    if not labels:
        return {}
    gains = [after - before for after, before in zip(attacker, baseline, strict=True)]
    how: dict[str, Any] = {"num_resamples": num_resamples, "confidence": confidence, "seed": seed}
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


def rates_table(rates: Mapping[str, CategoryRates]) -> str:
    """A Markdown table with a row per category and intervals; empty without categories."""
    if not rates:
        return ""
    rows = [
        f"| {label} | {own.num_prompts} | {own.baseline.spelled('.1%')} "
        f"| {own.attacker.spelled('.1%')} | {own.lift.points()} |"
        for label, own in rates.items()
    ]
    head = ["| category | prompts | untrained | trained | gain |", "|---|---|---|---|---|"]
    return "\n".join([*head, *rows])


def with_categories(page: str, rates: Mapping[str, CategoryRates]) -> str:
    """A Markdown page with the table below it; without categories the page unchanged."""
    table = rates_table(rates)
    return f"{page}\n# Attack success by category\n\n{table}\n" if table else page


def rates_csv(rates: Mapping[str, CategoryRates]) -> str:
    """CSV with a row per category: its name, number of prompts, and value and ends of each rate."""
    rows = [
        {
            "category": label,
            "num_prompts": own.num_prompts,
            **own.baseline.flat("untrained"),
            **own.attacker.flat("trained"),
            **own.lift.flat("gain"),
        }
        for label, own in rates.items()
    ]
    return csv_text(rows, list(rows[0]) if rows else [])


def category_figures(rates: Mapping[str, CategoryRates], area: str) -> dict[str, float]:
    """How many categories there are and how far they differ; none without categories.

    ``area``: the part before the slash of a figure's name, such as ``final``.
    """
    found = [own.attacker.value for own in rates.values()]
    if not found:
        return {}
    return {
        f"{area}/num_categories": float(len(found)),
        f"{area}/category_success_rate_min": min(found),
        f"{area}/category_success_rate_max": max(found),
    }
