"""The screen: one line for a person at a time, without what libraries print."""

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from astra_core.errors import AstraError
from astra_core.errors.exception_text import masked_trace
from astra_core.redaction import visible
from astra_parts.arguments import LineParser
from tasks.machine.heartbeat import AT_WORK, Heartbeat, heartbeat
from tasks.machine.telling import DEBUG, INFO, tell, tell_complaint

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

LOUD_LOGGERS = (
    "alembic",
    "great_expectations",
    "mlflow",
    "transformers",
    "urllib3",
    "fsspec",
    "git",
)


class Advance(Protocol):
    """Moves a progress bar on."""

    def __call__(self, n: int = 1, *, note: str = "") -> None:
        """Says that ``n`` more are done, and with ``note`` what came of it so far."""


class _Screen:
    """The person's streams, wherever ``libraries_to`` has sent the process's own."""

    out: TextIO | None = None
    error: TextIO | None = None
    has_bar: bool = False


def say(line: str) -> None:
    """Prints one line on standard output, with characters that control a terminal escaped."""
    _put(visible(line), _Screen.out or sys.stdout)
    tell(visible(line))


def say_found(record: Any, lines: Iterable[str], *, as_json: bool) -> None:
    """Prints a record for a program as JSON, or else lines for a person."""
    for line in [json.dumps(record, indent=2, ensure_ascii=False)] if as_json else lines:
        say(line)


def say_plainly(lines: str) -> None:
    """Prints lines that are our own, such as a help."""
    _put(lines, _Screen.out or sys.stdout)


def _put(line: str, stream: TextIO) -> None:
    """Prints a line; letters that the stream's encoding lacks are escaped."""
    try:
        encoding = stream.encoding or "utf-8"
        shown = line.encode(encoding, "backslashreplace").decode(encoding)
        print(shown, file=stream, flush=True)
    except OSError as error:
        # What is left in the stream would fail once more when the process ends.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        reason = error.strerror
        msg = f"the output must be taken to its end, got: {reason}; see where it is written to"
        raise AstraError(msg) from None


def open_streams() -> None:
    """Opens the standard streams that the parent closed.

    Without it a stream is None, and the next file that is opened has its number, so that what is
    meant for the screen is written into it.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is not None:
            continue
        stream = Path(os.devnull).open(mode)  # noqa: SIM115 - for the life of the process
        if stream.fileno() != number:
            os.dup2(stream.fileno(), number)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def complain(line: str) -> None:
    """Prints one line on standard error, with characters that control a terminal escaped."""
    with suppress(AstraError):  # there is no other place to say so
        _put(visible(line), _Screen.error or sys.stderr)
    tell_complaint(visible(line))


def show_trace(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Replaces ``sys.excepthook``: a bug keeps its trace, which quotes no attack."""
    del kind, trace
    complain(masked_trace(error).rstrip())


class Parser(LineParser):
    """A command-line parser whose error messages quote what was typed or pasted."""

    def _print_message(self, message: str, file: "SupportsWrite[str] | None" = None) -> None:
        super()._print_message(visible(message), file)


def report_place(line: str) -> None:
    """Shows how far a stage is: on standard error where no bar can be drawn, and in run logs."""
    screen = _Screen.error or sys.stderr
    if not screen.isatty():
        with suppress(AstraError):
            _put(visible(line), screen)
    tell(visible(line), level=DEBUG if AT_WORK in line else INFO)


@contextmanager
def at_work(stage: str) -> Iterator[None]:
    """Says at intervals, while the body runs, that the stage is at work or how far its loop is."""
    with heartbeat(stage, show=report_place):
        yield


@contextmanager
def progress(description: str, total: int) -> Iterator[Advance]:
    """Yields ``advance(n=1, note="")``, which moves a bar on a terminal, else lines at intervals.

    There is one bar at a time: one inside another draws and prints nothing.
    """
    if _Screen.has_bar:
        yield _stand_still
        return
    _Screen.has_bar = True
    screen = _Screen.error or sys.stderr
    try:
        with (
            heartbeat(description, total, show=report_place) as beat,
            _bar(description, total, screen) as draw,
        ):

            def advance(n: int = 1, *, note: str = "") -> None:
                beat.advance(n, note=note)
                draw(n, beat)

            yield advance
    finally:
        _Screen.has_bar = False


@contextmanager
def _bar(
    description: str, total: int, screen: TextIO
) -> Iterator[Callable[[int, Heartbeat], None]]:
    """Yields a function that moves a bar, or one that does nothing if there is no terminal."""
    if not screen.isatty():
        yield lambda _, __: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[words]}"),
    )
    # Transient: only the stage's one line stays on the screen.
    with Progress(*columns, console=Console(file=screen), transient=True) as bar:
        task = bar.add_task(description, total=total or None, words="")

        def draw(n: int, beat: Heartbeat) -> None:
            bar.update(task, advance=n, words=beat.words())

        yield draw


def _stand_still(n: int = 1, *, note: str = "") -> None:
    """Takes the place of a bar where there is no terminal."""


def quiet_libraries() -> None:
    """Sends warnings to logging, and lets libraries log only errors."""
    # A caller that set a warning filter, such as pytest with "error", keeps it.
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    for name in LOUD_LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)


class _Warnings(logging.Handler):
    """Shows each warning once, as a line for a person."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._shown: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        line = f"warning: {record.getMessage()}"
        if line not in self._shown:
            self._shown.add(line)
            complain(line)


@contextmanager
def warnings_shown() -> Iterator[None]:
    """In the body, what core and parts warn of is shown, wherever the streams go."""
    loggers, handler = [*map(logging.getLogger, ("astra_core", "astra_parts"))], _Warnings()
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


@contextmanager
def libraries_to(log: Path) -> Iterator[None]:
    """Sends what is written to the process's streams to ``log``; ``say`` and bars stay visible.

    It works on file descriptors, so that compiled code and child processes are caught too.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    with (
        log.open("w", encoding="utf-8") as file,
        os.fdopen(kept[0], "w", encoding="utf-8") as out,
        os.fdopen(kept[1], "w", encoding="utf-8") as error,
    ):
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        _Screen.out, _Screen.error = out, error
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(kept[0], 1)
            os.dup2(kept[1], 2)
            _Screen.out = _Screen.error = None
