"""``astra baselines``: what a trained attacker is worth beside attackers that nobody trained."""

from pathlib import Path
from typing import Annotated

import typer

from flows.usage import Assignments, Preset
from tasks.machine.console import progress, say_found


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
    assignments: Assignments = None,
    preset: Preset = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Examine an attacker beside untrained ones at equal cost; writes reports/baselines.json."""
    from dataclasses import asdict

    from flows.commands.model_serving import model_folders
    from flows.settings import examination_params, folder_or_choice
    from tasks.figures.baselines import COUNT, Baselines
    from tasks.figures.examination import EvaluationFiles, EvaluationParams, Examiner
    from tasks.machine.tables import aligned
    from tasks.pipeline.stage import sections_for
    from tasks.records.baselines import BASELINES, HEAD
    from tasks.records.prompts import read_prompts
    from tasks.records.reports import write_record

    params = examination_params(assignments or [], preset)
    own = None if speaker is None else folder_or_choice(speaker)
    (weights,) = model_folders([attacker], params).values()
    files = EvaluationFiles(attacker=weights)
    prompts = read_prompts(files.valid / "test.parquet", limit=params.evaluation.num_prompts)
    examiner = Examiner.of(sections_for(EvaluationParams, params), files)
    with progress("baselines", total=COUNT) as advance:
        found = Baselines(examiner, prompts, weights, own).table(advance)
    write_record(found, BASELINES)
    lines = [*aligned([HEAD, *(row.told() for row in found.rows)]), *found.notes()]
    say_found(asdict(found), lines, as_json=as_json)
