"""Two versions on one page: self-contained HTML, or Markdown."""

from typing import Any

from tasks.report.comparison import SideBySide, verdict
from tasks.report.page import templates
from tasks.report.pictures import pictures_of_two


def html_of_two(found: SideBySide) -> str:
    """The HTML page of two versions, like ``html_page`` for one."""
    page = templates().get_template("compare.html.j2")
    return page.render(**_of_two(found), charts=pictures_of_two(found.first, found.second))


def markdown_of_two(found: SideBySide) -> str:
    """The Markdown page of two versions, without pictures and findings."""
    return templates().get_template("compare.md.j2").render(**_of_two(found))


def _of_two(found: SideBySide) -> dict[str, Any]:
    title = f"{found.first.name} and {found.second.name}"
    return {"title": title, "found": found, "verdict": verdict(found)}
