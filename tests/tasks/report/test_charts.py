import re
import xml.etree.ElementTree as ET

import pytest
from each_row import each_row
from report_material import HOSTILE, STEPS

from astra_core.metrics.statistics import Interval
from tasks.report.charts import LevelLine, draw_lines, draw_path, draw_scores, draw_spans, line_of

pytestmark = pytest.mark.real

SPAN = Interval(0.5, 0.4, 0.6)
LABELS = ("update", "share")


def _tree(svg):
    return ET.fromstring(svg)  # noqa: S314 - our own


def _texts(svg):
    return "".join(_tree(svg).itertext())


def test_a_curve_is_text_and_colours_of_the_page():
    line = line_of(STEPS, "eval/attack_success_rate", "on dev prompts")
    chart = draw_lines([line], "a", "", labels=LABELS, levels=[LevelLine("final", SPAN)])
    svg = chart.svg

    assert "on dev prompts" in _texts(svg)
    assert {"--first", "--second", "--ink", "--rule"} <= set(re.findall(r"var\((--\w+)\)", svg))
    assert "#f1f1f" not in svg
    assert chart == draw_lines([line], "a", "", labels=LABELS, levels=[LevelLine("final", SPAN)])


def test_an_interval_is_drawn_where_there_is_one():
    own = line_of(STEPS, "eval/attack_success_rate", "x")
    assert [0.1, 0.4] == own.low
    assert [] == line_of(STEPS, "eval/reward_mean", "x").low
    with_band, without = (
        draw_lines([line_of(STEPS, f"eval/{name}", "x")], "a", "", labels=LABELS).svg
        for name in ("attack_success_rate", "reward_mean")
    )
    assert ("0.18" in with_band, "0.18" in without) == (True, False)


def test_nothing_is_drawn_of_nothing():
    assert line_of(STEPS, "eval/other", "x") is None
    assert line_of(STEPS.iloc[:0], "eval/kl_nats", "x") is None
    assert draw_lines([None], "a", "", labels=LABELS) is None
    assert draw_path({"a": []}, "a", "") is None
    assert draw_spans({}, "a", "", owners=("trained",)) is None
    assert draw_scores({"trained": []}, "a", "") is None


def test_two_charts_of_a_page_share_no_name():
    line = line_of(STEPS, "eval/kl_nats", "x")
    first, second = (
        set(re.findall(r' id="([^"]+)"', draw_lines([line], name, "", labels=LABELS).svg))
        for name in "ab"
    )
    assert first
    assert not first & second


@each_row("text", [HOSTILE, "$x^2$ \\frac", "漢字" * 40])
def test_any_label_is_text_and_nothing_else(text):
    pictures = [
        draw_spans({text: (SPAN, SPAN)}, "a", "", owners=("trained", "untrained")),
        draw_path({text: [(0.0, 0.1, 0), (1.0, 0.2, 3)]}, "b", ""),
        draw_scores({text: [0.1, 0.2]}, "c", ""),
    ]
    for chart in pictures:
        tags = {element.tag.rpartition("}")[2] for element in _tree(chart.svg).iter()}
        assert tags <= {"svg", "defs", "style", "g", "path", "use", "text", "clipPath", "rect"}
