import pytest
from report_material import HOSTILE, material

from tasks.report.comparison import side_by_side
from tasks.report.page_of_two import html_of_two, markdown_of_two

pytestmark = pytest.mark.real


def test_settings_that_differ_are_listed_and_escaped():
    second = material(version="4", params={"prompts": {"source": HOSTILE}})
    found = side_by_side(material(), second)
    page = html_of_two(found)

    assert ["models.target.source", "prompts.source"] == [row.label for row in found.settings]
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "attacker version 4" in markdown_of_two(found)
