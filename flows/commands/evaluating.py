"""``astra evaluate``: any attackers against any targets."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt
from flows.usage import Assignments
from tasks.machine.console import progress, say_found

if TYPE_CHECKING:
    from tasks.figures.crossing import Crossed

UNTRAINED, CONFIGURED = "untrained", "params.yaml"


def evaluate(
    attackers: Annotated[
        list[str],
        typer.Argument(help="champion, a version's number, a folder, NAME=FOLDER, or untrained."),
    ],
    target: Annotated[
        list[Path] | None,
        typer.Option(metavar="FOLDER", help="A model to attack, if not the one of params.yaml."),
    ] = None,
    assignments: Assignments = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Examine any versions or folders on the test prompts, against one target or several."""
    from dataclasses import asdict

    from flows.commands.model_serving import model_folders
    from flows.settings import examination_params
    from tasks.figures.crossing import BASE, base_with_target, crossed

    params = examination_params(assignments or [])
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
    bases = {str(folder): base_with_target(folder, params) for folder in target or []}
    bases = bases or {CONFIGURED: BASE}
    cells = []
    with progress("evaluation", total=len(found) * len(bases)) as advance:
        for cell in crossed(found, bases, params):
            cells.append(cell)
            advance()
    say_found([asdict(cell) for cell in cells], _table(cells), as_json=as_json)


def _table(cells: Sequence["Crossed"]) -> list[str]:
    """Attack success, a line for each attacker, a column for each target."""
    targets = list(dict.fromkeys(cell.target for cell in cells))
    from tasks.machine.tables import aligned

    rows: dict[str, list[str]] = {}
    for cell in cells:
        rows.setdefault(cell.attacker, []).append(cell.rate.spelled(".1%"))
    lines = [["attack success", *targets], *([name, *rates] for name, rates in rows.items())]
    return [*aligned(lines), f"on {cells[0].record['num_prompts']} test prompts"]
