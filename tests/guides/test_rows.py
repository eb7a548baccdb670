"""The page for people who come from another system: its scripts run, its table is of today."""

import runpy

import pytest
from each_row import each_row
from guide_rows import PAGE, WAYS, rendered, shown
from pages import blocks

SCRIPTS = blocks(PAGE, "python")


@pytest.mark.wide
@pytest.mark.parametrize("number", range(len(SCRIPTS)), ids=lambda number: f"script-{number}")
def test_a_script_of_the_page_runs_as_it_stands(number, here):
    (here / "script.py").write_text(SCRIPTS[number], "utf-8")

    runpy.run_path("script.py", run_name="__main__")


@each_row("way", WAYS)
def test_every_row_of_the_guides_is_shown_in_a_script_and_in_the_pipeline(way):
    assert set(range(1, 89)) == {each.number for each in shown() if each.way == way}


def test_every_row_has_one_title():
    titled = [each.number for each in shown() if each.title]

    assert sorted(set(titled)) == titled


def test_the_table_of_the_page_is_what_the_tests_say():
    written = PAGE.read_text("utf-8")

    assert rendered(written) == written, "run: python -m tests.guides"
