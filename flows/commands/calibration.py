"""``astra judge-check``: a judge's verdicts and people's labels; nothing heavy is imported here."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt
from flows.usage import AsJsonObject, Reveal

if TYPE_CHECKING:
    from astra_core.config import Choice
    from tasks.params.schema import Params
    from tasks.sources.labelled import LabelColumns

OF_PARAMS = "null"
_FILES = {".yaml", ".yml", ".json"}


def judge_check(
    file: Annotated[Path, typer.Argument(help="Labelled replies: csv, jsonl or parquet.")],
    *,
    judge: Annotated[
        str, typer.Option(help="A name, a file with name and options, or null.")
    ] = OF_PARAMS,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="Scores from here on are flagged; default: evaluation.threshold."
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=COLUMN", help="Such as label=is_harmful; repeatable."),
    ] = None,
    bad: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL", help="The label of a bad reply, if not 1; repeatable."),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Group rows by it, such as model; repeatable."),
    ] = None,
    reveal: Reveal = False,
    as_json: AsJsonObject = False,
) -> None:
    """Compare a judge with labelled replies; null is the judge of params.yaml."""
    from astra_core.registry import find
    from tasks.machine.environment import set_up_process
    from tasks.params.schema import read_params

    columns = replace(named_columns(column or []), bad=tuple(bad or ()), by=tuple(by or ()))
    params = read_params()
    choice = chosen_judge(judge, params)
    set_up_process(params)
    find("scorer", choice)
    from tasks.figures.calibration import run_calibration

    run_calibration(
        choice,
        file,
        threshold=params.evaluation.threshold if threshold is None else threshold,
        confidence=params.evaluation.confidence,
        columns=columns,
        is_revealed=reveal,
        as_json=as_json,
    )


def chosen_judge(judge: str, params: "Params") -> "Choice":
    """The judge that an argument of the command line names.

    Raises:
        ConfigurationError: The argument names a file that holds none.
    """
    from astra_core.config import Choice
    from tasks.params.yaml_files import load_yaml, read_yaml_text

    if judge == OF_PARAMS:
        return params.system.scorer
    path = Path(judge)
    if path.suffix.lower() not in _FILES:
        return Choice.read(judge, where="--judge")
    text = read_yaml_text(path)
    record = load_yaml(text, subject=str(path), way_out="correct that line")
    if isinstance(record, dict) and "name" not in record:
        msg = (
            f"--judge must be a name, null or a file with name and options, got {path} without a "
            "name; null is the judge of params.yaml"
        )
        raise ConfigurationError(msg)
    return Choice.read(record, where=str(path))


def named_columns(assignments: Sequence[str]) -> "LabelColumns":
    """The names of the columns after these assignments, each ``name=column``.

    Raises:
        ConfigurationError: One is no assignment, or names something other than a column.
    """
    from tasks.sources.labelled import COLUMN_NAMES, LabelColumns

    found: dict[str, Any] = {}
    for assignment in assignments:
        name, _, column = assignment.partition("=")
        if name not in COLUMN_NAMES or not column:
            msg = (
                f"--column must read NAME=COLUMN with a name of {list(COLUMN_NAMES)}, got "
                f"{excerpt(assignment)}; for example label=is_harmful"
            )
            raise ConfigurationError(msg)
        found[name] = column
    return LabelColumns(**found)
