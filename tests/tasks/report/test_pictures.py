from dataclasses import replace

import pytest
from report_material import STEPS, material

from astra_core.metrics.statistics import Interval
from tasks.figures.turns import TurnRates, TurnRecord
from tasks.records.evaluation import CategoryRates
from tasks.report.pictures import pictures, pictures_of_two

SPAN = Interval(0.5, 0.4, 0.6)
ALL = [
    "Attack success during training",
    "Reward during training",
    "KL against reward",
    "Success by turn",
    "Diversity during training",
    "Scores of prompts",
]


@pytest.mark.real
def test_a_version_has_every_chart_that_there_are_figures_for():
    whole = material()
    rates = {"fraud": CategoryRates(9, SPAN, SPAN, SPAN)}
    bare = material(turns=None, steps=STEPS[["step"]], table=whole.table[["role", "prompt_id"]])

    assert ALL == [chart.title for chart in pictures(whole)]
    by_category = replace(whole, evaluation=replace(whole.evaluation, categories=rates))
    assert "fraud (9)" in pictures(by_category)[-1].svg
    assert [] == pictures(bare)
    one_turn = TurnRecord(*[TurnRates((SPAN,), SPAN)] * 2)
    assert [] == pictures(replace(bare, turns=one_turn))


@pytest.mark.real
def test_two_versions_are_drawn_into_the_same_charts():
    found = pictures_of_two(material(version="3"), material(version="4"))

    assert "Success by turn" in [chart.title for chart in found]
    for chart in found:
        assert "attacker version 3" in chart.svg
        assert "attacker version 4" in chart.svg
