"""Figures of a run, each recorded once, however often a killed registration is repeated."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tasks.records.reports import csv_text
from tasks.tracking.values import finite_numbers

if TYPE_CHECKING:
    from mlflow import MlflowClient


HEADLINE = (
    "final/attack_success_rate",
    "final/lift",
    "final/kl_nats",
    "final/unique_attacks",
    "final/over_refusal_rate",
    "baseline/attack_success_rate",
)
"""Figures of an examination that become metrics; all would be a hundred charts of one dot."""


def figures_csv(figures: Mapping[str, Any]) -> str:
    """CSV with a row per figure: its name, the trained attacker's and the untrained one's."""
    columns = {"final": "trained", "baseline": "untrained"}
    rows: dict[str, dict[str, Any]] = {}
    for name, value in figures.items():
        area, _, own = name.partition("/")
        rows.setdefault(own, {"figure": own})[columns[area]] = value
    return csv_text(rows.values(), ["figure", *columns.values()])


def log_figures(
    client: "MlflowClient",
    run_id: str,
    figures: Mapping[str, Any],
    *,
    step: int = 0,
    model_id: str | None = None,
) -> None:
    """Records the finite figures that the run does not have at this step yet.

    ``figures``: figures by name; those that are not finite are left out.
    """
    from mlflow.entities import Metric

    finite = finite_numbers(figures)
    known = {
        (name, metric.step, metric.value)
        for name in client.get_run(run_id).data.metrics
        if name in finite
        for metric in client.get_metric_history(run_id, name)
    }
    now = int(time.time() * 1000)
    new = [
        Metric(name, value, now, step, model_id=model_id, run_id=run_id)
        for name, value in finite.items()
        if (name, step, value) not in known
    ]
    if new:
        client.log_batch(run_id, metrics=new)
