"""Pages of a report: one self-contained HTML file, or Markdown."""

from typing import TYPE_CHECKING, Any

from tasks.report.comparison import SideBySide, verdict
from tasks.report.facts import attacked, cost, data_gates, lineage
from tasks.report.material import Material
from tasks.report.pictures import pictures, pictures_of_two
from tasks.report.story import decision, headlines, lead, limits, title

if TYPE_CHECKING:
    from jinja2 import Environment

_PACKAGE = "tasks.report"
_SHORT = 16


def html_page(material: Material) -> str:
    """The whole report; every text is escaped, and nothing is loaded from anywhere."""
    page = templates().get_template("report.html.j2")
    return page.render(**_told(material), charts=pictures(material), findings=material.findings)


def markdown_page(material: Material) -> str:
    """The report without pictures and findings, for a terminal or a merge request."""
    return templates().get_template("report.md.j2").render(**_told(material))


def stamp(material: Material) -> str:
    """The run and the examination in one line."""
    summary = material.lineage.summary
    return (
        f"Registered {summary.created[:16].replace('T', ' ')} UTC, {summary.algorithm} from seed "
        f"{summary.seed}. Examination {material.examination[:_SHORT]}: figures compare only with "
        "those of the same examination."
    )


def _told(material: Material) -> dict[str, Any]:
    return {
        "title": title(material),
        "lead": lead(material),
        "stamp": stamp(material),
        "headlines": headlines(material),
        "decision": decision(material),
        "attacked": attacked(material),
        "limits": limits(material),
        "cost": cost(material),
        "data_gates": data_gates(material),
        "lineage": lineage(material),
    }


def templates() -> "Environment":
    """The templates of the pages; those for HTML escape everything that they are given."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    return Environment(
        loader=PackageLoader(_PACKAGE),
        autoescape=select_autoescape(enabled_extensions=("html.j2",)),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )


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
