"""``astra init``, a new project in its own folder, and ``astra import``, a model for it."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(init)
    app.command("import")(import_model)


def init(
    folder: Annotated[Path, typer.Argument(help="A new or empty folder.")],
    prompts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your prompts, copied into the project.")
    ] = None,
) -> None:
    """Make a new project: code, params.yaml, dvc.yaml and everything else that a run needs."""
    from contextlib import chdir

    from astra_core.errors import ConfigurationError
    from astra_core.errors.exception_text import excerpt
    from flows.settings import change_params
    from tasks.machine.console import say
    from tasks.params.schema import read_params
    from tasks.pipeline.order import PIPELINE_FILE, render

    place = folder.absolute()
    try:
        _check(place, prompts)
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        got = f"{excerpt(str(folder))}: {error.strerror}"
        msg = f"FOLDER must be a folder that can be made, got {got}; name another"
        raise ConfigurationError(msg) from None
    _fill(place)
    kept = Path("prompts") / prompts.name if prompts is not None else None
    if prompts is not None and kept is not None:
        _copy(prompts, place / kept)
    with chdir(place):
        if kept is not None:
            for line in change_params(["prompts.source=file", f"prompts.path={kept.as_posix()}"]):
                say(f"params.yaml    {line}")
        PIPELINE_FILE.write_text(render(params=read_params()), encoding="utf-8")
    say(f"{'project':<13}{folder}")
    say(f"{'next':<13}cd {folder}; astra check; astra run")


def library() -> Path:
    """The folder that this program runs from, with everything that a project needs.

    Raises:
        ConfigurationError: The program was installed without these files.
    """
    from astra_core.errors import ConfigurationError

    root = Path(__file__).resolve().parents[2]
    lacking = [
        name for name in ("params.yaml", "dvc.yaml", ".dvc/config") if not (root / name).is_file()
    ]
    if lacking:
        msg = (
            f"astra init must run from a clone or a source archive of the library, got {root} "
            f"without {', '.join(lacking)}; install it with 'make setup' in a clone"
        )
        raise ConfigurationError(msg)
    return root


def _check(place: Path, prompts: Path | None) -> None:
    from astra_core.errors import ConfigurationError
    from astra_core.paths import kind_of

    if place.resolve().is_relative_to(library()):
        msg = f"FOLDER must lie outside of the library's own {library()}, got {place}; name another"
        raise ConfigurationError(msg)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        found = "a folder with files" if place.is_dir() else kind_of(place)
        msg = f"FOLDER must be new or empty, got {place}, {found}; name another"
        raise ConfigurationError(msg)
    if prompts is not None and not prompts.is_file():
        msg = f"--prompts must name a file of prompts, got {prompts}; there is none"
        raise ConfigurationError(msg)


def _fill(place: Path) -> None:
    """Copies a project's files, and makes it a git repository if git is installed."""
    import shutil
    import subprocess

    from tasks.pipeline.workspace import copy_project

    copy_project(library(), place)
    git = shutil.which("git")
    if git is not None:
        command = [git, "init", "-q"]
        subprocess.run(command, cwd=place, check=False, capture_output=True)  # noqa: S603


def _copy(prompts: Path, place: Path) -> None:
    import shutil

    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(prompts, place)


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
