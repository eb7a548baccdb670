"""``astra evaluate`` and ``astra baselines``: attackers against any targets, or beside others."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt
from flows.usage import AsJson, Assignments, Preset
from tasks.machine.console import progress, say_found

UNTRAINED, CONFIGURED = "untrained", "params.yaml"


def evaluate(
    attackers: Annotated[
        list[str],
        typer.Argument(help="champion, a version's number, a folder, NAME=FOLDER, or untrained."),
    ],
    target: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FOLDER|FILE",
            help="Attacked in place of params.yaml's: a model, or a YAML file of a target with "
            "name and options.",
        ),
    ] = None,
    assignments: Assignments = None,
    preset: Preset = None,
    as_json: AsJson = False,
) -> None:
    """Examine any versions or folders on the test prompts, against one target or several."""
    from flows.commands.model_serving import model_folders
    from flows.settings import examination_params, folder_or_choice
    from tasks.figures.crossing import BASE, base_with_target
    from tasks.stages.evaluation import evaluate_checkpoint

    params = examination_params(assignments or [], preset)
    found: dict[str, Path | None] = {}
    for word in attackers:
        ((name, folder),) = (
            [(word, None)] if word == UNTRAINED else model_folders([word], params).items()
        )
        # Folders of one name are told apart by their paths.
        key = name if "=" in word else word
        if key in found:
            msg = (
                f"attackers must have names of their own, got {excerpt(key)} twice; use NAME=FOLDER"
            )
            raise ConfigurationError(msg)
        found[key] = folder
    worlds = {} if target else {CONFIGURED: (BASE, params)}
    for path in target or []:
        other = folder_or_choice(path)
        if isinstance(other, Path):
            worlds[str(path)] = base_with_target(other, params), params
        else:
            said = f"system.target={json.dumps(other.model_dump())}"
            worlds[str(path)] = BASE, examination_params([*(assignments or []), said], preset)
    cells: list[dict[str, Any]] = []
    with progress("evaluation", total=len(found) * len(worlds)) as advance:
        for name, (base, own) in worlds.items():
            for attacker, weights in found.items():
                record, _ = evaluate_checkpoint(weights, own, base=base)
                cells.append({"attacker": attacker, "target": name, "record": record})
                advance()
    say_found(cells, _table(cells), as_json=as_json)


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
    as_json: AsJson = False,
) -> None:
    """Examine an attacker beside untrained ones at equal cost; writes reports/baselines.json."""
    from dataclasses import asdict

    from flows.commands.model_serving import model_folders
    from flows.settings import examination_params, folder_or_choice
    from tasks.figures.baselines import COUNT, Baselines
    from tasks.figures.examination import EvaluationFiles, EvaluationParams, Examiner
    from tasks.machine.tables import align
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
    lines = [*align([HEAD, *(row.cells() for row in found.rows)]), *found.notes()]
    say_found(asdict(found), lines, as_json=as_json)


def _table(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Attack success, a line for each attacker, a column for each target."""
    from astra_core.metrics.statistics import Interval
    from tasks.machine.tables import align
    from tasks.records.evaluation import RATE

    targets = list(dict.fromkeys(cell["target"] for cell in cells))
    rows: dict[str, list[str]] = {}
    for cell in cells:
        rate = Interval.read(cell["record"]["attacker"][RATE])
        rows.setdefault(cell["attacker"], []).append(rate.spelled(".1%"))
    lines = [["attack success", *targets], *([name, *rates] for name, rates in rows.items())]
    return [*align(lines), f"on {cells[0]['record']['num_prompts']} test prompts"]
