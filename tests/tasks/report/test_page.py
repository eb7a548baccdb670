import re
from dataclasses import asdict, replace
from html.parser import HTMLParser

import pytest
from report_material import HOSTILE, material

from tasks.promotion.bands import GateRule
from tasks.report.comparison import html_of_two, markdown_of_two, side_by_side
from tasks.report.findings import Finding
from tasks.report.page import html_page, markdown_page

# What a page may not need, and what may not run on it.
OUTSIDE = re.compile(r"""(?:src|srcset|@import|url)\s*[=(]\s*["']?(?!#)""")


class _Elements(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def page():
    """A page on which every text that comes from elsewhere is hostile."""
    finding = Finding("0.9", HOSTILE, HOSTILE, ((HOSTILE, HOSTILE),), HOSTILE)
    params = {"prompts": {"path": HOSTILE}, "models": {"target": {"source": HOSTILE}}}
    found = material(decision="refused", reasons=HOSTILE, findings=(finding,), params=params)
    return html_page(found)


@pytest.mark.real
def test_hostile_text_is_text(page):
    elements = _Elements()
    elements.feed(page)

    assert "script" not in {tag for tag, _ in elements.found}
    assert not any(name.startswith("on") for _, own in elements.found for name in own)
    assert "&lt;script&gt;" in page


@pytest.mark.real
def test_the_page_needs_nothing_beside_it(page):
    elements = _Elements()
    elements.feed(page)

    assert not OUTSIDE.search(page.partition("</style>")[2])
    assert not {"link", "img", "iframe"} & {tag for tag, _ in elements.found}
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    assert "width=device-width" in page


@pytest.mark.real
def test_findings_stand_below_a_warning_that_folds_them_away(page):
    # Not open: who opens it was warned.
    start = page.index("<details>")

    assert "Content warning: 1 attacks" in page[start : page.index("</summary>")]
    assert page.index("</details>") > page.index("Score 0.9") > start
    assert "Worst findings" not in html_page(material(findings=()))


@pytest.mark.real
def test_every_part_is_on_the_page(page):
    heads = re.findall(r"<h2>([^<]+)</h2>", page)

    assert heads == [
        "What was attacked",
        "Curves",
        "By turn",
        "Diversity",
        "Baselines",
        "Worst findings",
        "The gate's decision",
        "Where it came from",
        "What it took",
        "How far the figures can be believed",
    ]
    assert page.count("<svg") >= 6


@pytest.mark.real
def test_the_same_version_gives_the_same_bytes(page):
    assert html_page(material()) == html_page(material())


def test_markdown_has_the_same_without_pictures():
    rule = asdict(GateRule("top_strategy_share", "61.0%", "20.0%", "at most 50.0%", held=False))
    found = material(decision="refused", reasons="gain must lie above 0", rules=(rule,))
    told = markdown_page(replace(found, flow_run="http://127.0.0.1:4200/runs/x"))

    assert "# Red-team report: attacker version 3" in told
    assert "| Attack success | 60.0% | interval 50.0 to 70.0 |" in told
    assert "Not promoted: a rule of the gate did not hold. Gain must lie above 0." in told
    assert "| top strategy share | 61.0% | 20.0% | at most 50.0% | no |" in told
    assert "| Untrained attacker | 20.0% [10.0%, 30.0%] |" in told
    assert "\n- MLflow run: http://127.0.0.1:5000/#/experiments/1/runs/abab" in told
    assert "/artifacts/data/prompts.html\n" in told
    assert "\n- Prefect run: http://127.0.0.1:4200/runs/x\n" in told
    assert "<" not in told


@pytest.mark.real
def test_settings_that_differ_are_listed_and_escaped():
    second = material(version="4", params={"prompts": {"source": HOSTILE}})
    found = side_by_side(material(), second)
    page = html_of_two(found)

    assert ["models.target.source", "prompts.source"] == [row.label for row in found.settings]
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "attacker version 4" in markdown_of_two(found)
