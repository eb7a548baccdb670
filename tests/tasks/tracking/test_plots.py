"""The pictures: drawn where there is something to show, and the same for the same numbers."""

from dataclasses import replace

import pandas as pd
import pytest
from registry_project import examined, prompt_table

from astra_core.metrics.statistics import Interval
from tasks.records.evaluation import CategoryRates
from tasks.tracking.plots import draw_plots

EVALUATION = examined()
STEPS = pd.DataFrame(
    {
        "step": [0, 1, 2],
        "train/reward_mean": [None, 0.1, 0.3],
        "eval/attack_success_rate": [0.2, None, 0.5],
        "eval/attack_success_rate_low": [0.1, None, 0.4],
        "eval/attack_success_rate_high": [0.3, None, 0.6],
    }
)
TABLE = prompt_table(rate=0.6, baseline=0.2)


@pytest.mark.real
def test_draw_plots_draws_learning_curve_reward_and_scores(tmp_path):
    drawn = draw_plots(tmp_path, steps=STEPS, table=TABLE, evaluation=EVALUATION)

    assert [path.name for path in drawn] == ["learning_curve.png", "reward.png", "scores.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)


@pytest.mark.real
def test_draw_plots_repeats_itself_byte_for_byte(tmp_path):
    first = draw_plots(tmp_path / "a", steps=STEPS, table=TABLE, evaluation=EVALUATION)
    second = draw_plots(tmp_path / "b", steps=STEPS, table=TABLE, evaluation=EVALUATION)

    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_draw_plots_leaves_out_what_was_not_measured(tmp_path):
    drawn = draw_plots(tmp_path, steps=STEPS[["step"]], table=TABLE[:0], evaluation=EVALUATION)

    assert drawn == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.real
def test_draw_plots_needs_no_intervals(tmp_path):
    steps = STEPS[["step", "eval/attack_success_rate"]]

    unmeasured = replace(EVALUATION, attacker={}, baseline={})

    drawn = draw_plots(tmp_path, steps=steps, table=TABLE[:0], evaluation=unmeasured)

    assert [path.name for path in drawn] == ["learning_curve.png"]


def test_draw_plots_draws_the_categories_there_are(tmp_path):
    wide, outside = Interval(0.5, 0.25, 0.75), Interval(0.4, 0.5, 0.75)
    own = CategoryRates(3, attacker=wide, baseline=outside, lift=wide)
    record = replace(EVALUATION, categories={"fraud": own, "a$b \u4e16": own})
    drawn = draw_plots(tmp_path, steps=STEPS[["step"]], table=TABLE[:0], evaluation=record)

    assert ["categories.png"] == [path.name for path in drawn]
    assert drawn[0].read_bytes().startswith(b"\x89PNG")
