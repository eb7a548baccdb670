import json
from pathlib import Path

import pytest
from each_row import each_row

from astra_core.errors import GateError
from tasks.expectations import Check, ValidationReport

HELD = Check("id_unique", "prompt_id", "critical", success=True, unexpected=0)
FAILED = Check("train_rows", "", "critical", success=False, unexpected=3, limit=">= 20")
REJECTING = Check(
    "url", "text", "row", success=False, unexpected=2, sample_ids=("a|1", "b"), rows=(0, 4)
)
WARNED = Check("licence_known", "licence", "warning", success=False, unexpected=1)


def report_of(*checks, **rest):
    return ValidationReport(subject="prompts", num_rows=10, checks=checks, **rest)


def test_only_a_critical_check_fails_a_report():
    assert report_of(HELD, REJECTING, WARNED).success
    assert not report_of(HELD, FAILED).success
    assert ("train_rows",) == report_of(HELD, FAILED, WARNED).critical_failed
    assert ("licence_known",) == report_of(FAILED, WARNED).warnings


def test_require_success_names_the_check_what_it_saw_and_the_page(tmp_path):
    report_of(HELD, WARNED).require_success(tmp_path)
    with pytest.raises(
        GateError, match=r"'train_rows' \(>= 20\) and 1 more, got 3; see .*page\.md"
    ):
        report_of(HELD, FAILED, FAILED).require_success(tmp_path / "page.md")


@each_row(
    ("rest", "said"),
    [
        (
            {"splits": {"train": 41, "dev": 4, "test": 5}},
            r"got 3; set validation\.min_prompts to 4, or raise prompts\.dev_fraction",
        ),
        (
            {"splits": {"train": 40, "dev": 0, "test": 5}},
            r"to 0\.3 and validation\.min_prompts to 5, or bring more",
        ),
        ({"splits": {"train": 2, "dev": 0, "test": 1}}, "got 3; bring more different prompts"),
        (
            {"num_rejected": 9, "reasons": {"url": 1, "non_ascii": 8}},
            r"most were rejected for non_ascii \(8\): .* validation\.languages, such as \[zh, en\]",
        ),
    ],
)
def test_require_success_names_values_with_which_the_prompts_pass(rest, said):
    with pytest.raises(GateError, match=said):
        report_of(FAILED, **rest).require_success(Path("page.md"))


def test_require_success_says_why_a_check_was_not_made(tmp_path):
    check = Check("x", "y", "critical", success=False, unexpected=0, note="not checked: no y")
    with pytest.raises(GateError, match="not checked: no y"):
        report_of(check).require_success(tmp_path)


def test_summary_names_the_three_most_common_reasons():
    reasons = {"email": 1, "url": 5, "phone": 2, "max_words": 5}
    report = report_of(HELD, WARNED, num_rejected=9, reasons=reasons)

    assert (
        "1 of 10 prompts pass 2 checks; rejected for max_words 5, url 5, phone 2; "
        "warnings: licence_known" == report.summary()
    )


def test_record_is_json_without_the_rows():
    record = json.loads(json.dumps(report_of(REJECTING, num_rejected=2).to_record()))

    assert 0.2 == record["rejected_fraction"]
    assert {
        "check",
        "column",
        "level",
        "success",
        "unexpected",
        "sample_ids",
        "limit",
        "note",
    } == set(record["checks"][0])


def test_page_shows_verdict_and_a_line_for_each_check():
    page = report_of(HELD, FAILED, REJECTING, splits={"train": 7}).to_markdown()

    assert "Gate **failed**: train_rows." in page
    assert "Accepted rows: train 7." in page
    assert "| url |  | row | no | 2 | a\\|1, b |" in page
