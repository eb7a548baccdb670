"""Pages of a report: one self-contained HTML file, or Markdown."""

from typing import TYPE_CHECKING, Any

from tasks.records.reports import table_cell
from tasks.report.facts import attack_facts, cost, data_gates, lineage, links
from tasks.report.hardening import hardening_tables
from tasks.report.material import Material
from tasks.report.pictures import pictures
from tasks.report.story import decision, headlines, lead, limits, title
from tasks.report.tables import Table, markdown_table, tables

if TYPE_CHECKING:
    from jinja2 import Environment

_PACKAGE = "tasks.report"
_SHORT = 16


def html_page(material: Material) -> str:
    """The whole report; every text is escaped, and nothing is loaded from anywhere."""
    page = templates().get_template("report.html.j2")
    return page.render(
        **_contents(material),
        charts=pictures(material),
        tables=_tables(material),
        findings=material.findings,
    )


def markdown_page(material: Material) -> str:
    """The report without pictures and findings, for a terminal or a merge request."""
    page = templates().get_template("report.md.j2")
    return page.render(**_contents(material), tables=[*map(markdown_table, _tables(material))])


def _tables(material: Material) -> list[Table]:
    hardened = hardening_tables(material.hardening) if material.hardening else []
    return tables(material) + hardened


def stamp(material: Material) -> str:
    """The run and the examination in one line."""
    summary = material.lineage.summary
    return (
        f"Registered {summary.created[:16].replace('T', ' ')} UTC, {summary.algorithm} from seed "
        f"{summary.seed}. Examination {material.examination[:_SHORT]}: figures compare only with "
        "those of the same examination."
    )


def _contents(material: Material) -> dict[str, Any]:
    return {
        "title": title(material),
        "lead": lead(material),
        "stamp": stamp(material),
        "headlines": headlines(material),
        "decision": decision(material),
        "rules": material.rules,
        "links": links(material),
        "attacked": attack_facts(material),
        "limits": limits(material),
        "cost": list(cost(material)),
        "origin": [*data_gates(material), *lineage(material)],
    }


def templates() -> "Environment":
    """The templates of the pages; those for HTML escape everything that they are given."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    found = Environment(
        loader=PackageLoader(_PACKAGE),
        autoescape=select_autoescape(enabled_extensions=("html.j2",)),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    found.filters["cell"] = table_cell
    return found
