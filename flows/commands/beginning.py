"""``astra init``, a new project in its own folder, and ``astra import``, a model for it."""

from pathlib import Path
from typing import Annotated

import typer

_FILES = (
    *("params.yaml", "requirements.lock", "requirements-torch.lock"),
    *(".dvc/config", ".dvcignore", ".gitignore"),
)
_README = """\
# {name}

A red-team project of Astra. `requirements.txt` names the version that it uses. In a clone:

    python3 -m venv .venv
    .venv/bin/pip install --no-deps --require-hashes -r requirements.lock
    .venv/bin/pip install -r requirements-torch.lock -r requirements.txt
    .venv/bin/astra run

`params.yaml` says what is run (`astra params --all` explains every key), `plugins/` has parts of
your own, `prefect.yaml` the schedules of `astra deploy`. After an upgrade: `astra migrate`, then
`astra run`, which runs again what the new code decides. Commit `dvc.lock` with `params.yaml`.
"""


def init(
    folder: Annotated[Path, typer.Argument(help="A new or empty folder.")],
    prompts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your prompts, copied into the project.")
    ] = None,
) -> None:
    """Make a new project, which uses this installation: params.yaml, plugins and schedules."""
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
        _commit()
    say(f"{'project':<13}{folder}")
    say(f"{'next':<13}cd {folder}; astra check; astra run")


def library() -> Path:
    """The folder with the files that a new project begins with: the source, or what it installed.

    Raises:
        ConfigurationError: Neither has them.
    """
    import sys

    from astra_core.errors import ConfigurationError

    places = (Path(__file__).resolve().parents[2], Path(sys.prefix) / "share" / "astra")
    for place in places:
        if (place / "params.yaml").is_file() and (place / ".dvc" / "config").is_file():
            return place
    msg = f"astra init must find params.yaml in {places[1]}, got none; install the package again"
    raise ConfigurationError(msg)


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
    """Copies what a project begins with; stages run the code of this installation."""
    import re
    import shutil
    from importlib.metadata import version

    import tasks

    for name in ("params", "plugins"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(library() / name, place / name, ignore=ignored)
    for name in _FILES:
        _copy(library() / name, place / name)
    _copy(Path(tasks.__file__).with_name("stage.sh"), place / "stage.sh")
    # Flows by the names of their modules, not by files of this folder.
    text = (library() / "prefect.yaml").read_text(encoding="utf-8")
    text = re.sub(
        r"(entrypoint: )(\S+)\.py:", lambda own: f"{own[1]}{own[2].replace('/', '.')}.", text
    )
    (place / "prefect.yaml").write_text(text, encoding="utf-8")
    pin = f"astra-red-team[ops]=={version('astra-red-team')}\n"
    (place / "requirements.txt").write_text(pin, encoding="utf-8")
    (place / "README.md").write_text(_README.format(name=place.name), encoding="utf-8")


def _commit() -> None:
    """Makes the folder a git repository with a first commit, as far as git can."""
    import shutil
    import subprocess

    git = shutil.which("git")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "project: begin")):
        if git is not None:
            subprocess.run([git, *words], check=False, capture_output=True)  # noqa: S603


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
