"""What a row of the table is, and the few ways in which rows are written down."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECK = ("tasks", "--check")


@dataclass(frozen=True)
class Case:
    """One thing a person can get wrong.

    Attributes:
        name: Names the test.
        command: A program, as ``test_bad_input.PROGRAMS`` knows it, and its arguments.
        says: What the one line must hold: the subject, and the rule or the way out.
        arrange: Changes the project, whose folder it is called with, before the command.
        environment: Variables of the command.
        status: Of the exit.
        alone: Runs as a process, with a time limit: what could hang, kill or be read at import.
        wide: One more place of what another case shows.
    """

    name: str
    command: tuple[str, ...]
    says: tuple[str, ...]
    arrange: Callable[[Path], Any] = lambda _: None
    environment: Mapping[str, str] = field(default_factory=dict)
    status: int = 2
    alone: bool = False
    wide: bool = False


def write(name: str, content: str | bytes) -> Callable[[Path], Any]:
    """Replaces a file by this content."""

    def arrange(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    return arrange


def params(**sections: Any) -> Callable[[Path], Any]:
    """A params.yaml of these sections alone; the others have their defaults."""
    return write("params.yaml", json.dumps(sections))


def cut(name: str, share: float = 0.5) -> Callable[[Path], Any]:
    """Leaves the first part of a file, as a copy that was broken off."""

    def arrange(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(share * len(content))])

    return arrange


def without(name: str) -> Callable[[Path], Any]:
    """Removes a file."""
    return lambda folder: (folder / name).unlink()


def folder_at(name: str) -> Callable[[Path], Any]:
    """Puts a folder where a file is meant."""

    def arrange(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir(parents=True)

    return arrange


def pipe_at(name: str) -> Callable[[Path], Any]:
    """Puts a pipe where a file is meant: to open it is to wait for ever."""

    def arrange(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return arrange


def circle_at(name: str) -> Callable[[Path], Any]:
    """Puts a link that leads to itself."""

    def arrange(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(name)

    return arrange


def unreadable_at(name: str) -> Callable[[Path], Any]:
    """Puts a file whose reading fails, for root too: the memory of a process at address 0."""

    def arrange(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to("/proc/self/mem")

    return arrange


def changed_json(name: str, **changes: Any) -> Callable[[Path], Any]:
    """Changes keys of a JSON file."""

    def arrange(folder: Path) -> None:
        record = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**record, **changes}))

    return arrange


def without_key(name: str, key: str) -> Callable[[Path], Any]:
    """Drops a key of a JSON file."""

    def arrange(folder: Path) -> None:
        record = json.loads((folder / name).read_text())
        del record[key]
        (folder / name).write_text(json.dumps(record))

    return arrange


def both(*steps: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """One after the other."""

    def arrange(folder: Path) -> None:
        for step in steps:
            step(folder)

    return arrange
