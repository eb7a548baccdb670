"""Common options, and errors about the command line and its folder; imports nothing heavy."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt, shorten
from astra_core.paths import kind_of

MARKER = "params.yaml"
PACKAGE = "astra-red-team"
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="As if params.yaml said so; repeatable."),
]
Preset = Annotated[
    str | None, typer.Option(metavar="NAME", help="As if params/NAME.yaml was laid over it.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsJsonObject = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Reveal = Annotated[bool, typer.Option("--reveal", help="Show the text unmasked.")]


def usage_line(error: Exception, message: str, arguments: Sequence[str]) -> str:
    """The problem with a command line; typer names neither the option nor its value.

    ``message``: its text; the help, which has many lines, stays unchanged.
    """
    if "\n" in message:
        return message
    names = getattr(getattr(error, "param", None), "opts", [])
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name in names:
            given = value if equals else "".join(arguments[place + 1 : place + 2])
            words = message[:1].lower() + message[1:]
            message = f"{name}: {words.rstrip('.')}, got {excerpt(given)}."
            break
    # Of the command, where it is known.
    command = getattr(getattr(error, "ctx", None), "command_path", "astra")
    return shorten(f"error: {message.rstrip('.')}. See '{command} --help'.")


def working_folder() -> Path:
    """The folder the command was called in. Raises ConfigurationError if the folder was removed."""
    try:
        return Path.cwd()
    except OSError as error:
        msg = f"astra must run in a folder, got none: {error.strerror}; change into the project"
        raise ConfigurationError(msg) from error


def project_folder(start: Path) -> Path:
    """The nearest folder from ``start`` upwards that holds the project."""
    for folder in (start, *start.parents):
        if (folder / MARKER).is_file():
            return folder
    msg = f"astra must run in a folder with {MARKER} or below one, got {start}; change into it"
    raise ConfigurationError(msg)


def read_from(here: Path, value: Any) -> Any:
    """A value of the command line for the project's folder, where the process works now.

    A path, or a text that is one in ``here`` only, was meant there, also behind ``NAME=``.
    """
    if isinstance(value, list | tuple):
        return type(value)(read_from(here, own) for own in value)
    if here == Path.cwd() or not isinstance(value, str | Path) or Path(value).is_absolute():
        return value
    is_there = [kind_of(place) in {"a file", "a folder"} for place in (here / value, value)]
    if isinstance(value, Path) or (not value.isalnum() and is_there == [True, False]):
        return type(value)(os.path.relpath(here / value))
    name, equals, place = value.partition("=")
    return f"{name}={read_from(here, place)}" if equals else value


def library() -> Path:
    """The folder with the files that a new project begins with: the source, or what it installed.

    Raises ConfigurationError if neither has them.
    """
    from importlib.metadata import distributions

    # Where an installer put the data depends on how it was called.
    installed = [
        Path(str(file.locate())).resolve().parent
        for own in distributions(name=PACKAGE)
        for file in own.files or ()
        if file.parts[-2:] == ("astra", "params.yaml")
    ]
    for place in (Path(__file__).resolve().parents[1], *installed):
        if (place / "params.yaml").is_file() and (place / ".dvc" / "config").is_file():
            return place
    msg = f"{PACKAGE} must be installed with its share/astra, got none; install it again"
    raise ConfigurationError(msg)
