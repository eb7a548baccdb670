"""The plots of ``dvc.yaml`` on one self-contained page.

DVC's own page loads its drawing library from another host, so it stays blank offline.
"""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from astra_core.errors import DataError
from astra_core.errors.exception_text import excerpt, shortened
from tasks.report.charts import FIRST, SECOND, THIRD, Chart, draw_lines, line_of
from tasks.report.page import templates

if TYPE_CHECKING:
    import pandas as pd

HERE = "workspace"
"""The name of the working folder beside revisions of git."""
_COLOURS = (FIRST, SECOND, THIRD)
MOST = 2 * len(_COLOURS)


def plots_page(revisions: Sequence[str] = (), *, pipeline: Path = Path("dvc.yaml")) -> str:
    """The page: one chart for each plot, one curve for each revision.

    Args:
        revisions: Revisions of git, beside the working folder.
        pipeline: The file that names the plots.

    Raises:
        DataError: A revision is unknown, or has no such file.
    """
    names = [HERE, *dict.fromkeys(revisions)]
    if len(names) > MOST:
        msg = f"astra plots must name at most {MOST - 1} revisions, got {len(names) - 1}; drop some"
        raise DataError(msg)
    tables: dict[tuple[str, str], pd.DataFrame] = {}
    charts = []
    for title, file, column in _plots(pipeline):
        lines = []
        for number, name in enumerate(names):
            if (name, file) not in tables:
                tables[name, file] = _table(file, name)
            colour, is_dashed = _COLOURS[number % len(_COLOURS)], number >= len(_COLOURS)
            steps = tables[name, file]
            lines.append(line_of(steps, column, name, colour=colour, is_dashed=is_dashed))
        svg = draw_lines(lines, name=title, labels=("step", column))
        if svg is not None:
            charts.append(Chart(title, f"Column {column} of {file}.", svg))
    title = "Plots of " + ", ".join(names)
    return templates().get_template("plots.html.j2").render(title=title, charts=charts)


def _plots(pipeline: Path) -> Iterator[tuple[str, str, str]]:
    """Title, file and column of each curve that the pipeline names."""
    import yaml

    try:
        record = yaml.safe_load(pipeline.read_text(encoding="utf-8"))
        for entry in record["plots"]:
            for title, plot in entry.items():
                yield from ((title, file, column) for file, column in plot["y"].items())
    except (OSError, yaml.YAMLError, LookupError, TypeError, AttributeError) as error:
        msg = (
            f"{pipeline} must name plots with 'y: {{file: column}}', got {excerpt(str(error))}; "
            "'make render' writes them"
        )
        raise DataError(msg) from error


def _table(file: str, revision: str) -> "pd.DataFrame":
    import pandas as pd

    try:
        if revision == HERE:
            return pd.read_csv(file)
        import dvc.api

        return pd.read_csv(io.StringIO(dvc.api.read(file, rev=revision)))
    except Exception as error:  # an error of git, of DVC or of the table itself
        got = shortened(str(error), limit=120)
        way_out = "'astra run' makes it" if revision == HERE else "try 'dvc fetch', or another one"
        msg = f"{revision} must have the table {file}, got {got}; {way_out}"
        raise DataError(msg) from error
