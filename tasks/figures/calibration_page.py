"""A calibration for a person: text lines, and the reliability diagram as a PNG file."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from astra_core.files import draft_of
from astra_core.metrics.statistics import Interval
from tasks.records.calibration import CalibrationRecord, CategoryCalibration, Mistake
from tasks.records.reports import table_cell

# Width of the labels on the left.
_WIDTH = 17
# Inches; the two axes get squares of equal size.
_SIZE = (4.8, 4.8)
_DPI = 120


def calibration_lines(
    record: CalibrationRecord, *, mistakes: Sequence[Mistake] | None = None
) -> list[str]:
    """The report as lines.

    ``mistakes``: unmasked ones, instead of the record's own.
    """
    return [
        *_summary(record),
        *_reliability(record),
        *_categories(record),
        *_mistakes(record, mistakes),
        f"{'report':<{_WIDTH}}{record.path} and {record.path.with_suffix('.png').name}",
    ]


def draw_reliability(record: CalibrationRecord, path: Path) -> None:
    """Draws the bad rate of replies over the judge's score, and the number of replies."""
    # A Figure is made directly: pyplot keeps global state and picks a backend by the environment.
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, layout="constrained")
    rates, counts = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    filled = [own for own in record.reliability if own.num_rows]
    values = [own.bad_rate.value for own in filled]
    ends = [
        [own.bad_rate.value - own.bad_rate.low for own in filled],
        [own.bad_rate.high - own.bad_rate.value for own in filled],
    ]
    scores = [own.mean_score for own in filled]
    rates.plot([0.0, 1.0], [0.0, 1.0], linestyle="--", color="black", linewidth=1)
    rates.errorbar(scores, values, yerr=ends, fmt="o-", markersize=4, linewidth=1)
    rates.axvline(record.threshold, color="black", linewidth=0.5)
    rates.set_ylabel("share of bad replies")
    rates.set_ylim(0.0, 1.0)
    places = [own.low for own in record.reliability]
    heights = [own.num_rows for own in record.reliability]
    counts.bar(places, heights, width=1.0 / len(places), align="edge")
    counts.set_ylabel("rows")
    counts.set_xlabel("score of the judge")
    counts.set_xlim(0.0, 1.0)
    with draft_of(path) as draft:
        # No version in the file: the same numbers give the same bytes.
        figure.savefig(draft, dpi=_DPI, format="png", metadata={"Software": None})


def _summary(record: CalibrationRecord) -> Iterator[str]:
    counts, labelled = record.confusion, record.labelled
    num_judged = labelled.num_rows - record.num_unjudged
    told = {
        "judge": f"{record.judge_name} ({record.judge})",
        "labelled": f"{labelled.name}, {labelled.num_rows} rows, {num_judged} judged",
    }
    if record.num_unjudged:
        reasons = ", ".join(f"{count} {reason}" for reason, count in record.unjudged.items())
        num_bad = record.num_unjudged_bad
        told["unjudged"] = f"{record.num_unjudged}, of which {num_bad} bad: {reasons}"
    told |= {
        "base rate": _spell(record.base_rate),
        "accuracy": _spell(record.accuracy),
        "Cohen's kappa": _spell(record.kappa),
        "AUC": _spell(record.auc),
        "sensitivity": f"{_spell(record.sensitivity)} (recall)",
        "specificity": _spell(record.specificity),
        "precision": _spell(record.precision),
        f"at {record.threshold:g}": (
            f"{counts.true_positives} caught, {counts.false_negatives} missed, "
            f"{counts.true_negatives} passed, {counts.false_positives} false alarms"
        ),
        "Brier score": f"{record.brier:.3f}",
    }
    for name, best in record.best_thresholds.items():
        told[{"youden": "best by Youden", "f1": "best by F1"}[name]] = (
            f"{best.threshold:.3f} ({best.value:.3f}; sensitivity {best.sensitivity:.3f}, "
            f"specificity {best.specificity:.3f})"
        )
    told["intervals"] = f"{record.confidence:.0%}, over rows"
    for label, text in told.items():
        yield f"{label:<{_WIDTH}}{text}"


def _reliability(record: CalibrationRecord) -> Iterator[str]:
    yield ""
    yield "| score | rows | mean score | share of bad replies |"
    yield "|---|---|---|---|"
    for own in record.reliability:
        if own.num_rows:
            span = f"{own.low:.1f} to {own.high:.1f}"
            rate = _spell(own.bad_rate)
            yield f"| {span} | {own.num_rows} | {own.mean_score:.3f} | {rate} |"


def _categories(record: CalibrationRecord) -> Iterator[str]:
    if not record.categories:
        return
    yield ""
    yield "| group | rows | bad | accuracy | kappa | sensitivity | specificity |"
    yield "|---|---|---|---|---|---|---|"
    for name, own in record.categories.items():
        figures = (own.accuracy, own.kappa, own.sensitivity, own.specificity)
        spans = " | ".join(map(_spell, figures))
        yield f"| {table_cell(name)} | {own.num_rows} | {own.num_bad} | {spans} |"
    for start in [f"{column}: " for column in record.by] or [""]:
        groups = {
            name.removeprefix(start): own
            for name, own in record.categories.items()
            if name.startswith(start)
        }
        if len(groups) > 1:
            told = f"{table_cell(start)} " if start else ""
            mean = sum(own.accuracy.value for own in groups.values()) / len(groups)
            yield f"{told}mean accuracy {mean:.3f}{_worst(groups)}"


def _worst(groups: Mapping[str, CategoryCalibration]) -> str:
    """The lowest sensitivity and specificity of groups, as far as two have one."""
    found = ""
    for figure in ("sensitivity", "specificity"):
        rates = {name: getattr(own, figure) for name, own in groups.items()}
        told = {name: rate for name, rate in rates.items() if not math.isnan(rate.value)}
        if len(told) > 1:
            worst = min(told, key=lambda name: told[name].value)
            found += f", worst {figure} {_spell(told[worst])} ({table_cell(worst)})"
    return found


def _mistakes(record: CalibrationRecord, revealed: Sequence[Mistake] | None) -> Iterator[str]:
    yield ""
    shown = record.mistakes if revealed is None else revealed
    if not shown:
        return
    yield (
        "content warning: the worst mistakes, in clear"
        if revealed is not None
        else "the worst mistakes; words are masked after the first letter, --reveal shows them"
    )
    yield "| place | mistake | score | reply |"
    yield "|---|---|---|---|"
    for own in shown:
        yield f"| {own.place} | {own.kind} | {own.score:.3f} | {table_cell(own.reply)} |"
    yield ""


def _spell(figure: Interval) -> str:
    return "none" if math.isnan(figure.value) else figure.spelled()
