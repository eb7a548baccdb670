"""``astra init``, a new project in its own folder, and ``astra import``, a model for it."""

from collections.abc import Iterator, Mapping
from contextlib import chdir
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt
from flows.usage import PACKAGE, library
from tasks.machine.console import quiet_libraries, say

_LOCKS = ("requirements.lock", "requirements-torch.lock")
_FILES = ("params.yaml", *_LOCKS, ".dvc/config", ".dvc/.gitignore", ".dvcignore", ".gitignore")
_README = """\
# {name}

A red-team project of Astra. `requirements.txt` names the Astra that it uses, a folder of this
machine if it was installed from one: for others, put a git address there. In a clone:

    python3 -m venv .venv
    .venv/bin/pip install --no-deps --require-hashes -r requirements.lock
    .venv/bin/pip install -r requirements-torch.lock -r requirements.txt
    .venv/bin/astra run

`params.yaml` says what is run (`astra params --all` explains every key), `plugins/` has parts of
your own, `prefect.yaml` the schedules of `astra deploy`. Commit `dvc.lock` with `params.yaml`.
`docs/...` in texts here is in Astra's own source; `docs/upgrading.md` is about upgrades.
"""


def init(
    folder: Annotated[Path, typer.Argument(help="A new or empty folder.")],
    prompts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your prompts, copied into the project.")
    ] = None,
) -> None:
    """Make a new project, which uses this installation: params.yaml, plugins and schedules."""
    from flows.settings import change_params
    from tasks.params.schema import read_params
    from tasks.pipeline.order import PIPELINE_FILE, render

    place = folder.absolute()
    try:
        _check(place, prompts)
        origin = _origin()
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        got = f"{excerpt(str(folder))}: {error.strerror}"
        msg = f"FOLDER must be a folder that can be made, got {got}; name another"
        raise ConfigurationError(msg) from None
    _fill(place, origin)
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
    say(f"{'next':<13}cd {quote(str(folder))}; astra check; astra run")


def renew() -> Iterator[str]:
    """Names of the files of an init project that belong to the package, as they are rewritten."""
    from tasks.pipeline.order import SCRIPT

    for name, source in _package_files().items() if SCRIPT.is_file() else ():
        if not Path(name).is_file() or Path(name).read_bytes() != source.read_bytes():
            _copy(source, Path(name))
            yield name


def _package_files() -> dict[str, Path]:
    import tasks

    script = Path(tasks.__file__).with_name("stage.sh")
    return {script.name: script, **{name: library() / name for name in _LOCKS}}


def _origin() -> str:
    import json
    from importlib.metadata import distribution

    if (library() / "pyproject.toml").is_file():
        return requirement("", {"url": library().as_uri()})
    own = distribution(PACKAGE)
    return requirement(own.version, json.loads(own.read_text("direct_url.json") or "{}"))


def requirement(version: str, source: Mapping[str, Any]) -> str:
    """The line for pip that installs this package again from where it came.

    A version alone makes pip ask its index, where anyone may own a name that we do not.

    ``source``: as direct_url.json has it; empty if an index it was.
    """
    name = f"{PACKAGE}[ops]"
    if not source:
        return f"{name}=={version}"
    url, git = source["url"], source.get("vcs_info")
    return f"{name} @ {git['vcs']}+{url}@{git['commit_id']}" if git else f"{name} @ {url}"


def _check(place: Path, prompts: Path | None) -> None:
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


def _fill(place: Path, origin: str) -> None:
    """Copies what a project begins with; stages run the code of this installation."""
    import re
    import shutil

    from tasks.tracking.lineage.provenance import git_output

    # Presets are read from the package, so that an upgrade renews them.
    for name, kept in (("params", "*.yaml"), ("plugins", "__pycache__")):
        shutil.copytree(library() / name, place / name, ignore=shutil.ignore_patterns(kept))
    for name in _FILES:
        _copy(library() / name, place / name)
    # In a clone, runs may have changed it.
    if committed := git_output(library(), "show", "HEAD:./params.yaml"):
        (place / "params.yaml").write_text(f"{committed}\n", encoding="utf-8")
    _copy(_package_files()["stage.sh"], place / "stage.sh")
    # Flows by the names of their modules, not by files of this folder.
    text = (library() / "prefect.yaml").read_text(encoding="utf-8")
    text = re.sub(
        r"(entrypoint: )(\S+)\.py:", lambda own: f"{own[1]}{own[2].replace('/', '.')}.", text
    )
    (place / "prefect.yaml").write_text(text, encoding="utf-8")
    (place / "requirements.txt").write_text(f"{origin}\n", encoding="utf-8")
    (place / "README.md").write_text(_README.format(name=place.name), encoding="utf-8")


def _commit() -> None:
    """Makes the folder a git repository with a first commit, as far as git can."""
    import shutil
    import subprocess

    if (git := shutil.which("git")) is None:
        return
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "project: begin")):
        command = [git, "-c", "commit.gpgsign=false", *words]
        done = subprocess.run(  # noqa: S603
            command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            why = (done.stderr.splitlines() or ["no reason given"])[-1]
            say(f"{'git':<13}no first commit, commit it yourself: {why}")
            return


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

    quiet_libraries()
    place = folder or Path("my") / file.stem.split(".")[0]
    count = convert_gguf(file, place)
    say(f"{place} has {count / 1e6:.1f} M parameters, tokenizer and chat template")
    say(f"next: --set models.target.source=folder --set models.target.path={place}")
