"""``astra import``; only typer is imported here."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("import")(import_model)


def import_model(
    file: Annotated[Path, typer.Argument(help="A GGUF file.")],
    folder: Annotated[
        Path | None,
        typer.Option(help="A new folder for the Hugging Face files; my/NAME if left out."),
    ] = None,
) -> None:
    """Turn a model in GGUF, as llama.cpp has it, into a folder that params.yaml can name."""
    from astra_parts.models.gguf import convert_gguf
    from tasks.machine.console import quiet_libraries, say

    quiet_libraries()
    place = folder or Path("my") / file.stem.split(".")[0]
    count = convert_gguf(file, place)
    say(f"{place} has {count / 1e6:.1f} M parameters, tokenizer and chat template")
    say(f"next: --set models.target.source=folder --set models.target.path={place}")
