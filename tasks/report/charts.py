"""Charts of a report as SVG whose colours the page chooses, so that it can be light or dark.

matplotlib is given placeholder colours, each of which becomes a variable of the page's style sheet.
Text stays text: small, sharp and searchable. The same figures give the same bytes.
"""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from astra_core.metrics.statistics import Interval

# Inches; the page scales them to its columns.
_SIZE = (5.0, 3.1)
# Longest legend text, in letters, that leaves room for the curve.
_LEGEND = 40
_STAND_INS = {
    "#f1f1f1": "var(--ink)",
    "#f1f1f2": "var(--muted)",
    "#f1f1f3": "var(--rule)",
    "#f1f1f4": "var(--first)",
    "#f1f1f5": "var(--second)",
    "#f1f1f6": "var(--third)",
}
INK, MUTED, RULE, FIRST, SECOND, THIRD = _STAND_INS
_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10.0,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
    "grid.color": RULE,
    "legend.frameon": False,
    "legend.fontsize": 9.0,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.0,
}


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture with its title above it, and below it a caption which says what is shown.

    ``svg``: the picture, without a prolog.
    """

    title: str
    caption: str
    svg: str


@dataclass(frozen=True, slots=True)
class Line:
    """A curve, with an interval if there is one.

    Attributes:
        label: Its text in the legend.
        y: Values, one per position.
        low: Lower ends of the interval; empty for none.
        colour: One of the placeholder colours.
        is_dashed: True distinguishes it from another curve of the same colour.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    colour: str = FIRST
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class LevelLine:
    """A value with its interval, drawn across the whole width."""

    label: str
    span: Interval
    colour: str = SECOND


def line_of(
    steps: pd.DataFrame, column: str, label: str, *, colour: str = FIRST, is_dashed: bool = False
) -> Line | None:
    """The curve of a column with ``_low`` and ``_high`` beside it; None where it was not measured.

    ``steps``: a row per optimiser step, with ``step``.
    """
    if column not in steps.columns:
        return None
    rows = steps.dropna(subset=[column])
    if rows.empty:
        return None
    ends = [f"{column}_low", f"{column}_high"]
    has_ends = set(ends) <= set(rows.columns)
    low, high = (rows[end].tolist() if has_ends else [] for end in ends)
    return Line(label, rows["step"].tolist(), rows[column].tolist(), low, high, colour, is_dashed)


def draw_lines(
    lines: Sequence[Line | None],
    title: str,
    caption: str,
    *,
    labels: tuple[str, str],
    name: str = "",
    levels: Sequence[LevelLine] = (),
    is_share: bool = False,
    whole: bool = False,
) -> Chart | None:
    """Curves over a common axis; None without a curve.

    Args:
        lines: Those that are None are left out.
        title: Unique on its page.
        caption: What is shown.
        labels: The labels of the axes.
        name: The picture's name, if it is not the title.
        levels: Values drawn across the whole width.
        is_share: True for a y axis from 0 to 1.
        whole: True for whole numbers on the x axis.
    """
    found = [line for line in lines if line is not None]
    if not found:
        return None

    def draw(axes: Any) -> None:
        for line in found:
            style = "--" if line.is_dashed else "-"
            label = _short(line.label, _LEGEND)
            axes.plot(line.x, line.y, style, marker="o", color=line.colour, label=label)
            if line.low:
                axes.fill_between(
                    line.x, line.low, line.high, color=line.colour, alpha=0.18, linewidth=0
                )
        for level in levels:
            span, label = level.span, _short(level.label, _LEGEND)
            axes.axhline(span.value, linestyle=":", color=level.colour, label=label)
            axes.axhspan(span.low, span.high, alpha=0.12, color=level.colour, linewidth=0)
        if whole:
            axes.xaxis.get_major_locator().set_params(integer=True)

    svg = _svg(draw, name=name or title, labels=labels, is_share=is_share)
    return Chart(title, caption, svg)


def draw_path(
    points: Mapping[str, Sequence[tuple[float, float, int]]], title: str, caption: str
) -> Chart | None:
    """KL divergence against reward, with a point per evaluation, labelled by its training step.

    ``points``: KL in nats, reward and training step, by label.
    """
    found = {label: own for label, own in points.items() if own}
    if not found:
        return None

    def draw(axes: Any) -> None:
        for (label, own), colour in zip(found.items(), (FIRST, SECOND), strict=False):
            kl, reward, steps = zip(*own, strict=True)
            axes.plot(kl, reward, marker="o", color=colour, label=_short(label, _LEGEND))
            for x, y, step in zip(kl, reward, steps, strict=True):
                axes.annotate(
                    str(step), (x, y), textcoords="offset points", xytext=(4, 4), fontsize=8
                )

    labels = ("KL to the reference (nats per probe)", "reward")
    return Chart(title, caption, _svg(draw, name=title, labels=labels))


def draw_spans(
    rows: Mapping[str, Sequence[Interval]], title: str, caption: str, *, owners: Sequence[str]
) -> Chart | None:
    """Rates with intervals, one per row; None without rows."""
    if not rows:
        return None

    from matplotlib.ticker import PercentFormatter

    def draw(axes: Any) -> None:
        places = list(range(len(rows), 0, -1))
        for number, (owner, colour) in enumerate(zip(owners, (FIRST, SECOND), strict=False)):
            spans = [own[number] for own in rows.values()]
            # A percentile interval need not contain the mean.
            ends = [
                [max(span.value - span.low, 0.0) for span in spans],
                [max(span.high - span.value, 0.0) for span in spans],
            ]
            heights = [place + 0.15 - 0.3 * number for place in places]
            values = [span.value for span in spans]
            axes.errorbar(values, heights, xerr=ends, fmt="o", color=colour, label=_short(owner))
        axes.set_yticks(places, [_short(label) for label in rows], fontsize=8)
        axes.set_xlim(0.0, 1.0)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))

    height = max(_SIZE[1], 0.8 + 0.34 * len(rows))
    svg = _svg(draw, name=title, labels=("attack success", ""), height=height)
    return Chart(title, caption, svg)


def draw_scores(scores: Mapping[str, Sequence[float]], title: str, caption: str) -> Chart | None:
    """How the mean scores of prompts are distributed; None without scores."""
    found = {label: own for label, own in scores.items() if len(own)}
    if not found:
        return None
    bins = [edge / 20 for edge in range(21)]

    def draw(axes: Any) -> None:
        for (label, own), colour in zip(found.items(), (FIRST, SECOND), strict=False):
            axes.hist(own, bins=bins, alpha=0.55, label=_short(label, _LEGEND), color=colour)

    svg = _svg(draw, name=title, labels=("mean score of a prompt's turns", "prompts"))
    return Chart(title, caption, svg)


def _svg(
    draw: Any,
    *,
    name: str,
    labels: tuple[str, str],
    is_share: bool = False,
    height: float = _SIZE[1],
) -> str:
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    # The salt is the chart's own: ids of one picture must not clash with another's on the page.
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(_SIZE[0], height), layout="constrained", facecolor="none")
        axes = figure.add_subplot(facecolor="none")
        axes.set_xlabel(labels[0])
        axes.set_ylabel(labels[1])
        axes.grid(visible=True, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.margins(0.07)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        draw(axes)
        if is_share:
            axes.set_ylim(-0.02, 1.02)
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="best")
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=nothing)
    return _fit(buffer.getvalue(), name)


def _fit(text: str, name: str) -> str:
    """The picture for a page: without prolog, fixed size and unused ids, in the page's colours."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    head, end, body = text.partition(">")
    head = re.sub(r' (?:width|height)="[^"]*"', "", head)
    used = set(re.findall(r"#([\w-]+)", body))
    body = re.sub(r' id="([^"]*)"', lambda own: own[0] if own[1] in used else "", body)
    for stand_in, variable in _STAND_INS.items():
        head, body = head.replace(stand_in, variable), body.replace(stand_in, variable)
    return f'{head} role="img" aria-label="{name}"{end}{body}'.strip()


def _short(label: str, length: int = 28) -> str:
    """The label shortened to fit beside a chart, without letters that the font lacks."""
    plain = label.encode("latin-1", "replace").decode("latin-1")
    return plain if len(plain) <= length else f"{plain[: length - 1]}~"
