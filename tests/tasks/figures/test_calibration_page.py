import math

import pytest
from calibrated_judge import calibration
from each_row import each_row

from astra_core.metrics.statistics import Interval
from tasks.figures.calibration_page import calibration_lines, draw_reliability
from tasks.records.calibration import CategoryCalibration, Mistake

LINES = calibration_lines(calibration())


@each_row(
    "line",
    [
        "judge            profanity (a judge 1.0)",
        "labelled         labelled.csv, 210 rows, 200 judged",
        "unjudged         10, of which 4 bad: 10 empty",
        "sensitivity      0.800 [0.700, 0.900] (recall)",
        "specificity      0.900 [0.800, 0.950]",
        "AUC              0.500 [0.250, 0.750]",
        "at 0.5           80 caught, 20 missed, 90 passed, 10 false alarms",
        "best by Youden   0.400 (0.700; sensitivity 0.850, specificity 0.850)",
        "| 0.0 to 0.5 | 200 | 0.250 | 0.500 [0.250, 0.750] |",
        "accuracy         none",
        "| abuse | 3 | 3 | none | none | 0.500 [0.250, 0.750] | none |",
        "| line 7 | missed | 0.100 | y·· f··· |",
    ],
)
def test_the_report_says(line):
    assert line in LINES


def test_groups_are_summed_up_by_their_column():
    half, most = Interval(0.5, 0.2, 0.8), Interval(0.9, 0.8, 1.0)
    none = Interval(math.nan, math.nan, math.nan)
    groups = {
        "model: a": CategoryCalibration(9, 3, most, most, accuracy=most),
        "model: b: c": CategoryCalibration(9, 3, half, none, accuracy=half),
        "type: c": CategoryCalibration(9, 3, most, most, accuracy=most),
    }
    record = calibration(categories=groups, by=("model", "type"))
    told = [line for line in calibration_lines(record) if "mean accuracy" in line]

    assert ["model: mean accuracy 0.700, worst sensitivity 0.500 [0.200, 0.800] (b: c)"] == told


def test_a_category_with_a_colon_is_no_column():
    span = Interval(0.5, 0.2, 0.8)
    names = ("Cyber: malware", "Cyber: fraud", "abuse")
    groups = {name: CategoryCalibration(9, 3, span, span, accuracy=span) for name in names}
    told = [
        line for line in calibration_lines(calibration(categories=groups)) if "accuracy 0" in line
    ]

    assert ["mean accuracy 0.500"] == [line.partition(",")[0] for line in told]
    assert "(Cyber: malware)" in told[0]


def test_bins_without_a_row_are_left_out():
    assert not any(line.startswith("| 0.5 to 1.0") for line in LINES)


def test_what_there_is_none_of_is_not_told():
    nothing = Interval(math.nan, math.nan, math.nan)
    record = calibration(num_unjudged=0, unjudged={}, categories={}, mistakes=(), precision=nothing)
    lines = calibration_lines(record)

    assert "precision        none" in lines
    assert not any(line.startswith(("unjudged", "| group", "| place")) for line in lines)


def test_mistakes_in_clear_carry_a_warning():
    shown = (Mistake("line 7", "missed", 0.1, "you | fool"),)
    lines = calibration_lines(calibration(), mistakes=shown)

    assert "content warning: the worst mistakes, in clear" in lines
    assert "| line 7 | missed | 0.100 | you ¦ fool |" in lines
    assert not any("--reveal" in line for line in lines)


@pytest.mark.real
def test_the_diagram_is_a_picture_of_the_numbers(tmp_path):
    files = [tmp_path / name for name in ("a.png", "b.png", "c.png")]
    records = [calibration(), calibration(), calibration(threshold=0.9)]
    for record, file in zip(records, files, strict=True):
        draw_reliability(record, file)
    first, second, other = (file.read_bytes() for file in files)

    assert first.startswith(b"\x89PNG")
    assert first == second != other
