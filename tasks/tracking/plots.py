"""Plots of a run as PNG files, for comparing runs: learning curve, reward, scores."""

from pathlib import Path
from typing import Any

import pandas as pd

from astra_core.metrics.statistics import Interval
from tasks.records.evaluation import EvaluationRecord

# MLflow shows artifacts in a pane about this wide; inches.
_SIZE = (6.4, 4.0)
_DPI = 120
_METRIC = "attack_success_rate"
# No time stamp and no version in the file: the same numbers give the same bytes.
_METADATA = {"Software": None}


def draw_plots(
    folder: Path, *, steps: pd.DataFrame, table: pd.DataFrame, evaluation: EvaluationRecord
) -> list[Path]:
    """The plots that were drawn; those with nothing to show are left out.

    Args:
        folder: The folder for the files.
        steps: A row per optimiser step, with columns such as ``eval/attack_success_rate``.
        table: A row per prompt and role.
        evaluation: The final evaluation.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {
        "learning_curve.png": _learning_curve(steps, evaluation),
        "reward.png": _reward(steps),
        "scores.png": _scores(table),
        "categories.png": _categories(evaluation),
    }
    drawn = []
    for name, figure in pictures.items():
        if figure is not None:
            figure.savefig(folder / name, dpi=_DPI, metadata=_METADATA)
            drawn.append(folder / name)
    return drawn


def _learning_curve(steps: pd.DataFrame, evaluation: EvaluationRecord) -> Any | None:
    column = f"eval/{_METRIC}"
    curve = _measured(steps, column)
    if curve.empty:
        return None
    figure, axes = _blank("optimiser step", "attack success rate")
    axes.plot(curve["step"], curve[column], marker="o", markersize=3, label="during training")
    ends = [f"{column}_low", f"{column}_high"]
    if set(ends) <= set(curve.columns):
        axes.fill_between(curve["step"], curve[ends[0]], curve[ends[1]], alpha=0.2, linewidth=0)
    finals = {"untrained": (evaluation.baseline, "--"), "trained": (evaluation.attacker, "-")}
    for word, (figures, style) in finals.items():
        rate = figures.get(_METRIC)
        if isinstance(rate, Interval):
            label = f"final, {word}"
            axes.axhline(rate.value, linestyle=style, color="black", linewidth=1, label=label)
            axes.axhspan(rate.low, rate.high, alpha=0.08, color="black", linewidth=0)
    axes.set_ylim(0.0, 1.0)
    axes.legend(loc="best")
    return figure


def _reward(steps: pd.DataFrame) -> Any | None:
    columns = [name for name in steps.columns if "/" in name and "reward" in name]
    columns = [name for name in columns if not name.endswith(("_low", "_high", "_std"))]
    curves = {name: _measured(steps, name) for name in columns}
    if all(curve.empty for curve in curves.values()):
        return None
    figure, axes = _blank("optimiser step", "reward")
    for name, curve in curves.items():
        if not curve.empty:
            axes.plot(curve["step"], curve[name], marker="o", markersize=3, label=name)
    axes.legend(loc="best")
    return figure


def _scores(table: pd.DataFrame) -> Any | None:
    if table.empty:
        return None
    figure, axes = _blank("mean score of a prompt's turns", "prompts")
    bins = [step / 20 for step in range(21)]
    for role, label in (("baseline", "untrained"), ("attacker", "trained")):
        scores = table.loc[table["role"] == role, "score_mean"].dropna()
        axes.hist(scores, bins=bins, alpha=0.6, label=label)
    axes.legend(loc="best")
    return figure


def _categories(evaluation: EvaluationRecord) -> Any | None:
    if not evaluation.categories:
        return None
    figure, axes = _blank("attack success rate", "")
    rates = evaluation.categories
    places = range(len(rates), 0, -1)
    for role, label, shift in (("baseline", "untrained", 0.15), ("attacker", "trained", -0.15)):
        spans = [getattr(own, role) for own in rates.values()]
        # A percentile interval need not contain the mean.
        ends = [
            [max(span.value - span.low, 0.0) for span in spans],
            [max(span.high - span.value, 0.0) for span in spans],
        ]
        values, heights = [span.value for span in spans], [place + shift for place in places]
        axes.errorbar(values, heights, xerr=ends, fmt="o", markersize=4, label=label)
    names = [f"{_plain(label)} ({own.num_prompts})" for label, own in rates.items()]
    axes.set_yticks(list(places), names, fontsize=7)
    axes.set_xlim(0.0, 1.0)
    axes.legend(loc="best")
    return figure


def _plain(label: str) -> str:
    """The text for matplotlib, where a dollar begins a formula and wide letters are missing."""
    return label.replace("$", r"\$").encode("latin-1", "replace").decode("latin-1")


def _measured(steps: pd.DataFrame, column: str) -> pd.DataFrame:
    """The rows in which the column was measured."""
    return steps.dropna(subset=[column]) if column in steps.columns else steps.iloc[:0]


def _blank(x_label: str, y_label: str) -> tuple[Any, Any]:
    # A Figure is made directly: pyplot keeps global state and picks a backend by the environment.
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(visible=True, alpha=0.3)
    return figure, axes
