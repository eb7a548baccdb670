"""``astra baselines``: what a trained attacker is worth beside attackers that nobody trained."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.usage import Assignments
from tasks.machine.console import progress, say_found

if TYPE_CHECKING:
    from astra_core.config import Choice
    from tasks.records.baselines import BaselineRecord


def baselines(
    attacker: Annotated[
        str, typer.Argument(help="champion, a version's number, or a folder.")
    ] = "champion",
    speaker: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER|FILE",
            help="Plays the prompted attackers: a chat model, or a YAML file with name and options "
            "of a target.",
        ),
    ] = None,
    templates: Annotated[
        Path | None, typer.Option(metavar="FILE", help="For the bandit, one a line.")
    ] = None,
    assignments: Assignments = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Examine an attacker beside untrained ones at equal cost; writes reports/baselines.json."""
    from dataclasses import asdict, fields

    from flows.commands.model_serving import model_folders
    from flows.settings import changed_params
    from tasks.figures.baselines import COUNT, Baselines
    from tasks.figures.examination import EvaluationFiles, EvaluationParams, Examiner
    from tasks.machine.environment import set_up_process
    from tasks.pipeline.stage import sections_for
    from tasks.records.baselines import BASELINES
    from tasks.records.prompts import read_prompts
    from tasks.records.reports import write_record

    sections = tuple(field.name for field in fields(EvaluationParams))
    params = changed_params(assignments or [], sections=sections)
    set_up_process(params)
    said, own = _templates(templates), _speaker(speaker)
    (weights,) = model_folders([attacker], params).values()
    files = EvaluationFiles(attacker=weights)
    prompts = read_prompts(files.valid / "test.parquet", limit=params.evaluation.num_prompts)
    examiner = Examiner.of(sections_for(EvaluationParams, params), files)
    with progress("baselines", total=COUNT) as advance:
        found = Baselines(examiner, prompts, weights, own, said).table(advance)
    write_record(found, BASELINES)
    say_found(asdict(found), _table(found), as_json=as_json)


def _templates(path: Path | None) -> tuple[str, ...]:
    from astra_parts.attackers.templates import TEMPLATES, check_templates
    from tasks.sources.text_files import readable, whole_text

    if path is None:
        return TEMPLATES
    with readable(path):
        lines = tuple(filter(None, map(str.strip, whole_text(path).splitlines())))
    check_templates(lines, str(path))
    return lines


def _speaker(path: Path | None) -> "Path | Choice | None":
    from astra_core.config import Choice
    from tasks.params.yaml_files import load_yaml, read_yaml_text

    if path is None or path.is_dir():
        return path
    record = load_yaml(read_yaml_text(path), subject=str(path), way_out="correct that line")
    return Choice.read(record, where=str(path))


def _table(found: "BaselineRecord") -> list[str]:
    from tasks.records.baselines import HEAD

    lines: list[Sequence[str]] = [HEAD, *(row.told() for row in found.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return [*shown, *found.notes()]
