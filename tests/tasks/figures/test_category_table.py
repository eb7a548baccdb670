import csv
import io

import pytest

from astra_core.metrics.statistics import Interval
from tasks.figures.category_table import (
    category_figures,
    category_rates,
    rates_csv,
    rates_table,
    with_categories,
)
from tasks.records.evaluation import CategoryRates


def span(value):
    return Interval(value, value - 0.1, value + 0.1)


RATES = {
    "fraud": CategoryRates(7, span(0.5), span(0.25), span(0.25)),
    "lies": CategoryRates(3, span(0.75), span(0.5), span(0.25)),
}


def test_the_table_has_a_row_with_intervals_for_each_category():
    lines = rates_table(RATES).splitlines()

    assert "| category | prompts | untrained | trained | gain |" == lines[0]
    assert (
        "| fraud | 7 | 25.0% [15.0%, 35.0%] | 50.0% [40.0%, 60.0%] | +25.0 points [+15.0, +35.0] |"
        == lines[2]
    )
    assert 4 == len(lines)


def test_a_page_without_categories_stays_as_it_is():
    assert "page\n" == with_categories("page\n", {})
    assert with_categories("page\n", RATES).startswith(
        "page\n\n# Attack success by category\n\n| c"
    )


def test_the_csv_has_every_number():
    rows = list(csv.DictReader(io.StringIO(rates_csv(RATES))))

    assert ["fraud", "lies"] == [row["category"] for row in rows]
    assert 0.6 == pytest.approx(float(rows[0]["trained_high"]))
    assert {"untrained", "untrained_low", "gain", "num_prompts"} < set(rows[0])


def test_figures_say_how_far_categories_differ():
    expected = {
        "final/num_categories": 2.0,
        "final/category_success_rate_min": 0.5,
        "final/category_success_rate_max": 0.75,
    }

    assert expected == category_figures(RATES, "final")
    assert {} == category_figures({}, "final")


OPTIONS = {"num_resamples": 100, "confidence": 0.9, "seed": 0}


def test_each_category_has_both_rates_and_the_gain():
    found = category_rates(
        ["a", "b", "a"], attacker=[1.0, 0.5, 0.5], baseline=[0.0, 0.5, 0.5], **OPTIONS
    )

    assert ["a", "b"] == list(found)
    assert (2, 1) == (found["a"].num_prompts, found["b"].num_prompts)
    assert (0.75, 0.25, 0.5) == tuple(
        span.value for span in (found["a"].attacker, found["a"].baseline, found["a"].lift)
    )


def test_prompts_without_categories_have_none():
    assert {} == category_rates((), attacker=[1.0], baseline=[0.0], **OPTIONS)
