"""Data Docs: what was expected of the rows and what was seen, as Great Expectations writes it.

The pages of the library load styles and scripts from seven hosts, and quote the values that are not
as expected. These are made by its renderers too, hold counts alone and load nothing.
"""

from collections.abc import Sequence
from typing import Any

from tasks.expectations.report import Check, ValidationReport

# What is expected of no column, but of all rows together.
_WHOLE = "all rows together"


def data_docs(title: str, reports: Sequence[ValidationReport]) -> str:
    """One page of HTML about each report of ``validate_frame``; equal reports give equal pages."""
    from great_expectations.render.view import DefaultJinjaPageView
    from jinja2 import ChoiceLoader, PackageLoader

    environment = DefaultJinjaPageView().env
    own = PackageLoader("tasks.expectations")
    environment.loader = ChoiceLoader([own, *filter(None, [environment.loader])])
    page = environment.get_template("data_docs.html.j2")
    text: str = page.render(title=title, suites=[_suite(report) for report in reports])
    return text + "\n"


def _suite(report: ValidationReport) -> dict[str, Any]:
    """The suite's name, a line about it, and its checks by column, each worded by the library."""
    columns: dict[str, list[dict[str, Any]]] = {}
    for check in report.checks:
        columns.setdefault(check.column or _WHOLE, []).append(_row(check))
    held = sum(check.success for check in report.checks)
    told = f"{held} of {len(report.checks)} expectations held on {report.num_rows} rows."
    return {"name": report.subject, "told": told, "columns": columns}


def _row(check: Check) -> dict[str, Any]:
    """The check's name and level, and its status, expectation and observed value as cells."""
    from great_expectations.core import ExpectationValidationResult
    from great_expectations.render.renderer.content_block import (
        ValidationResultsTableContentBlockRenderer,
    )

    result = ExpectationValidationResult(
        success=check.success,
        expectation_config=check.expectation.configuration,
        result={} if check.note else _observation(check),
        exception_info={
            "raised_exception": bool(check.note),
            "exception_message": check.note or None,
            "exception_traceback": "",
        },
    )
    block = ValidationResultsTableContentBlockRenderer.render([result]).to_json_dict()
    return {"check": check.check, "level": check.level, "cells": block["table"][0]}


def _observation(check: Check) -> dict[str, Any]:
    if check.observed is not None:
        return {"observed_value": check.observed}
    count = int(check.unexpected)
    share = 100 * count / max(check.num_checked, 1)
    return {
        "element_count": check.num_checked,
        "unexpected_count": count,
        "unexpected_percent": share,
        "unexpected_percent_total": share,
        "partial_unexpected_list": [],
    }
