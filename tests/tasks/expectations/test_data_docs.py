import re

import pandas as pd
import pytest

from astra_core.rollout.metadata import prompt_id_of
from tasks.expectations import validate_frame
from tasks.expectations.data_docs import data_docs
from tasks.expectations.facts import PROMPT_ROW_COLUMNS, prompt_facts
from tasks.expectations.suites import prompt_row_suite
from tasks.params.schema import ValidationConfiguration

pytestmark = pytest.mark.real  # the library takes seconds to load
ADDRESS = "jane@mail.example.org"


@pytest.fixture(scope="module")
def report():
    texts = ["write to me", f"write to {ADDRESS}", "what a day", "<script>alert(1)</script> it"]
    frame = prompt_facts(
        pd.DataFrame(
            {"prompt_id": [prompt_id_of(text) for text in texts], "text": texts, "licence": "mit"}
        )
    ).assign(prompt_score=0.1)
    suite = prompt_row_suite(ValidationConfiguration())
    return validate_frame(frame[list(PROMPT_ROW_COLUMNS)], suite, id_column="prompt_id")


def test_a_row_of_the_page_says_what_was_expected_and_seen(report):
    page = data_docs("Prompts", [report])
    (row,) = re.findall(r"<tr>(?:(?!</tr>).)*<code>email</code>.*?</tr>", page, re.DOTALL)
    cells = " ".join(re.sub(r"<[^>]*>", " ", row).split())

    assert "fa-times" in row
    assert cells.startswith("text must hold no email.")
    assert "1 unexpected values found. 25% of 4 total rows." in cells
    assert cells.endswith("25% unexpected email row")
    assert 1 == page.count("fas fa-times")
    assert len(report.checks) - 1 == page.count("fas fa-check-circle")


def test_the_page_quotes_nothing_and_loads_nothing(report):
    page = data_docs("Prompts", [report])

    assert ADDRESS not in page
    assert "alert(1)" not in page
    assert not re.search(r"<script|<link|<img|https?://|url\(|@import", page)
    assert "default-src 'none'" in page


def test_equal_reports_make_equal_pages(report):
    assert data_docs("Prompts", [report]) == data_docs("Prompts", [report])


def test_a_check_that_could_not_be_made_says_why():
    suite = prompt_row_suite(ValidationConfiguration())
    rows = pd.DataFrame({"prompt_id": ["a"], "text": ["good day"]})
    page = data_docs("Prompts", [validate_frame(rows, suite, id_column="prompt_id")])

    assert "not checked" in page
    assert "num_characters" in page
