"""``astra export``; only typer is imported here."""

from pathlib import Path
from typing import Annotated

import typer

Version = Annotated[str, typer.Argument(help="champion, candidate, previous or a number.")]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(export)


def export(
    version: Version = "champion",
    *,
    folder: Annotated[Path, typer.Option(help="A new folder for the Hugging Face files.")],
) -> None:
    """Write a version's attacker with its weights, also from a service that gives them out."""
    from tasks.machine.console import quiet_libraries, say
    from tasks.params.schema import read_params
    from tasks.tracking.registry.exports import export_version

    quiet_libraries()
    name = read_params().registration.model_name
    export_version(name, version, folder, base=Path("models/base"))
    say(f"{folder} has the weights of {name} {version}")
