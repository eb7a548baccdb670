import json
from dataclasses import replace

import pytest
from each_row import each_row
from report_material import material

from astra_core.metrics.statistics import Interval
from tasks.records.evaluation import OverRefusal
from tasks.report.comparison import html_of_two, markdown_of_two, side_by_side, verdict


def _of(found, label):
    return next(each for each in found.differences if each.label == label)


def test_differences_are_paired_by_prompt():
    found = side_by_side(material(version="3", rate=0.5), material(version="4", rate=0.75))
    success = _of(found, "Attack success")

    # A quarter of 40 prompts gains a success, none loses one.
    assert 0.25 == pytest.approx(success.found.gain)
    assert (0.5, 0.75) == (success.found.champion, success.found.candidate)
    assert success.p_value < 0.01
    assert "" == found.obstacle
    assert verdict(found).startswith("attacker version 4 succeeds more often than attacker version")
    assert _of(side_by_side(found.second, found.first), "Attack success").found.gain < 0


def test_the_same_twice_is_explained_by_chance():
    found = side_by_side(material(), material(version="4"))

    assert "chance alone could explain" in verdict(found)
    assert 1.0 == pytest.approx(_of(found, "Attack success").p_value)
    assert () == found.settings


@pytest.mark.real
def test_other_examinations_are_not_subtracted_and_the_page_says_why():
    first, second = material(), material(version="4")
    params = {**second.params, "system": {"scorer": {"name": "regex"}}}
    other = replace(second.evaluation, evaluation_key="a1" * 32)
    found = side_by_side(first, replace(second, evaluation=other, params=params))

    assert () == found.differences
    assert "e7e7e7e7e7e7e7e7 and a1a1a1a1a1a1a1a1 (system.scorer.name differ)" in found.obstacle
    assert "Not comparable" in html_of_two(found)
    assert "Paired differences" not in html_of_two(found)
    assert "Not comparable" in markdown_of_two(found)


def test_tables_of_other_prompts_are_not_subtracted():
    second = material(version="4")
    table = second.table.assign(prompt_id=second.table["prompt_id"] + "x")
    found = side_by_side(material(), replace(second, table=table))

    assert "must be examined on the same prompts" in found.obstacle


def test_a_comparison_is_json():
    told = json.loads(json.dumps(side_by_side(material(), material(version="4")).record()))

    assert {"3", "4"} == {told[side]["version"] for side in ("first", "second")}
    assert 0.0 == told["differences"]["Attack success"]["gain"]


def test_figures_of_both_are_in_percent_counted_or_left_out():
    first, second = material(), material(version="4")
    refused = OverRefusal("ab" * 32, "refusal 1", 9, 0, 0, Interval(0.5, 0.25, 0.75))
    counted = {**second.evaluation.attacker, "unique_attacks": 1234.0}
    examined = replace(second.evaluation, attacker=counted, over_refusal=refused)
    found = side_by_side(first, replace(second, evaluation=examined))
    rows = {row.label: (row.first, row.second) for row in found.figures}

    assert "60.0% [50.0%, 70.0%]" == rows["Attack success"][0]
    assert ("", "1,234") == rows["Unique attacks found"]
    assert "50.0% [25.0%, 75.0%]" == rows["Harmless requests refused"][1]
    assert "Strategies found" not in rows


def test_a_setting_of_several_lines_is_one_row():
    second = material(version="4")
    told = {"target": {"options": {"system_prompt": "Be | kind.\nSay no."}}}
    found = side_by_side(material(), replace(second, params={**second.params, "system": told}))

    assert "| Be ¦ kind. Say no. |" in markdown_of_two(found)


@each_row("changes", [{"requests": "cd" * 32}, {"judge": "refusal 2"}])
def test_refusals_of_other_requests_or_by_another_judge_are_not_put_side_by_side(changes):
    refused = OverRefusal("ab" * 32, "refusal 1", 9, 0, 0, Interval(0.5, 0.25, 0.75))
    first, second = (
        replace(own, evaluation=replace(own.evaluation, over_refusal=found))
        for own, found in ((material(), refused), (material(), replace(refused, **changes)))
    )
    same, other = (side_by_side(first, own).figures for own in (first, second))

    assert "Harmless requests refused" in {row.label for row in same}
    assert "Harmless requests refused" not in {row.label for row in other}
