from dataclasses import replace

import pytest
from report_material import material

from astra_core.metrics.statistics import Interval
from tasks.records.hardening import Hardening, HardeningRound
from tasks.report.hardening import hardening_page, hardening_tables
from tasks.report.page import html_page, markdown_page
from tasks.report.story import story

LOW, HIGH = Interval(0.1, 0.05, 0.2), Interval(0.8, 0.7, 0.9)


@pytest.fixture
def found():
    rounds = (
        HardeningRound(0, "t", 0, 0, 30, LOW, Interval(2, 1, 3), Interval(1, 1, 1)),
        HardeningRound(1, "u", 9, 8, 30, LOW, Interval(2.1, 1, 3), Interval(1.05, 1, 1.1), "7"),
    )
    success = {0: {0: HIGH, 1: HIGH}, 1: {0: LOW, 1: HIGH}}
    return Hardening("k", "a", 20, 0.95, rounds, success, "all rounds are done")


def test_a_row_for_each_target_and_a_cell_for_each_pair(found):
    rounds, play = hardening_tables(found)

    assert ("target 0", "80.0% [70.0%, 90.0%]", "80.0% [70.0%, 90.0%]") == rounds.rows[0][:3]
    assert ("target 1, version 7", "10.0% [5.0%, 20.0%]") == rounds.rows[1][:2]
    assert "1.050 [1.000, 1.100]" == rounds.rows[1][-1]
    assert ["old attacker", "fresh attacker 1"] == [row[0] for row in play.rows]
    assert ("Attacker", "target 0", "target 1") == play.head


def test_without_a_fresh_attacker_its_cell_is_empty(found):
    alone = replace(found, success={0: {0: HIGH}, 1: {0: LOW}})

    assert "-" == hardening_tables(alone)[0].rows[1][2]


def test_the_page_says_what_was_learned_where_the_best_is_and_why_it_ended(found):
    page = hardening_page(found, best=1)

    assert "round 1 from 9 findings and 8 harmless pairs" in page
    assert "target 1, in `models/hardened/k/target_1`" in page
    assert page.endswith("Ended: all rounds are done.\n")
    assert "No hardened target is within the limits." in hardening_page(found, best=0)


def test_the_report_of_the_version_that_it_began_with_has_its_tables(found):
    own = replace(material(), hardening=found)

    assert "Every attacker against every target" in html_page(own)
    assert "all rounds are done" == story(own)["hardening"]["ended"]
    assert story(material())["hardening"] is None
    assert "target 1, version 7" in markdown_page(own)
    assert "Hardened targets" not in html_page(material())
