"""Why a stage failed, in a file that the flow reads, because DVC passes on only an exit status."""

import errno
import json
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import gettempdir
from types import FrameType
from typing import NoReturn

from astra_core.errors import (
    AstraError,
    ConfigurationError,
    DiskFullError,
    GateError,
    LostProcessError,
    PluginError,
    RolloutError,
)
from astra_core.errors.exception_text import excerpt, shown_text
from astra_core.files import disk_full, is_disk_full, read_json, write_json
from astra_core.paths import closed_above, kind_of
from tasks.machine.memory import is_out_of_memory, out_of_memory

FAILURES = Path(".astra/failures")
LOGS = Path(".astra/logs")

_CLOSED = {errno.EACCES, errno.EPERM, errno.EROFS}

FOLDERS = ("data", "models", "reports", "findings", "runs", ".astra", ".dvc")
"""What a run writes to; where one is missing, the nearest folder above must be open to it."""

EXIT_BUG = 1
EXIT_MISTAKE = 2
EXIT_GATE = 3
EXIT_SIGNAL = 128


class Stopped(BaseException):
    """The process was asked to end; like KeyboardInterrupt this is no error."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(frozen=True, slots=True)
class StageFailure:
    """What went wrong, in the stage's own words."""

    error: str
    message: str
    retryable: bool


def plain(error: BaseException) -> BaseException:
    """The error as a person sees it, which names the memory or the disk that ran out."""
    # A flow tells a stage's failure in the stage's own words.
    if is_out_of_memory(error) and "must have more memory" not in str(error):
        return out_of_memory(error)
    if isinstance(error, OSError) and error.errno in _CLOSED and error.filename is not None:
        name = excerpt(os.fsdecode(error.filename))
        return ConfigurationError(
            f"{name} must be open to this user, got: {error.strerror}; 'astra doctor' says more"
        )
    if isinstance(error, AstraError) or not is_disk_full(error):
        return error
    # DVC's error names no file: it copies into its cache, and keeps its state elsewhere.
    return disk_full(error, Path.cwd(), Path(".dvc/cache"), Path(".dvc/tmp"), Path(gettempdir()))


def cut_off(status: int) -> str:
    """How a process ended that left no word of its own, such as "was ended by SIGABRT"."""
    number = -status if status < 0 else status - EXIT_SIGNAL
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"was cut off with exit status {status}"
    # Compiled code that gets no memory aborts; the kernel kills what takes too much.
    is_memory = number in {signal.SIGABRT, signal.SIGKILL}
    return f"was ended by {name}{', most likely for lack of memory' if is_memory else ''}"


def failure_of(error: BaseException) -> StageFailure:
    """What to tell the flow about an exception; whatever may quote an attack is masked."""
    if isinstance(error, Stopped | KeyboardInterrupt):
        message = f"stopped by {signal.Signals(_number(error)).name}; start again to resume"
        return StageFailure("Stopped", message, retryable=True)
    if isinstance(error, SystemExit):
        message = f"sys.exit({shown_text(error)}) must not be called by what a stage runs"
        return StageFailure("SystemExit", message, retryable=False)
    message = shown_text(error) or "no message"
    return StageFailure(type(error).__name__, message, retryable=_can_pass(error))


def exit_status(error: BaseException) -> int:
    """The exit status of a stage that ended with this exception; 128 + signal as a shell has it."""
    if isinstance(error, Stopped | KeyboardInterrupt):
        return EXIT_SIGNAL + _number(error)
    if isinstance(error, GateError):
        return EXIT_GATE
    return EXIT_MISTAKE if isinstance(error, AstraError) else EXIT_BUG


def write_failure(failure: StageFailure, stage: str) -> None:
    """Leaves the failure where ``read_failure`` finds it, if there is room for it."""
    with suppress(DiskFullError):
        write_json(asdict(failure), FAILURES / f"{stage}.json")


def claim_failure(failure: StageFailure, stage: str) -> bool:
    """Whether this is the first failure since ``clear_failure``, which is then written.

    Of several processes the first to fail reports it: the others fail because it is gone.
    """
    try:
        FAILURES.mkdir(parents=True, exist_ok=True)
        with (FAILURES / f"{stage}.json").open("x", encoding="utf-8") as file:
            json.dump(asdict(failure), file)
    except FileExistsError:
        return False
    except OSError:
        # If the disk has no room for the file, only the screen shows why.
        return True
    return True


def check_folders() -> None:
    """Raises ConfigurationError unless the folders for what a stage leaves behind can be used."""
    for folder in (FAILURES.parent, FAILURES, LOGS):
        kind = kind_of(folder)
        if kind not in {"a folder", "nothing there"}:
            msg = f"{folder} must be a folder, got {kind}; move it away"
            raise ConfigurationError(msg)


def check_writable(paths: Iterable[Path]) -> None:
    """Raises unless every path can be made, or replaced.

    Raises ConfigurationError if one cannot; better now than after hours of work.
    """
    for path in paths:
        closed = closed_above(path.parent)
        if closed is not None:
            msg = (
                f"{path} must be a place to write to, got {closed} ({kind_of(closed)}) that is "
                "closed to this user; 'astra doctor --fix' opens what it can"
            )
            raise ConfigurationError(msg)


def clear_failure(stage: str, *, folder: Path = FAILURES) -> None:
    """Forgets the failure of an earlier try."""
    (folder / f"{stage}.json").unlink(missing_ok=True)


def read_failure(stage: str, *, folder: Path = FAILURES) -> StageFailure | None:
    """The failure that the last try left; None if it passed, or was killed before writing one."""
    try:
        found = StageFailure(**read_json(folder / f"{stage}.json"))
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
        # Half a file is what a full disk left.
        return None
    return found if isinstance(found.message, str) and isinstance(found.retryable, bool) else None


def stop_on_terminate() -> None:
    """Makes SIGTERM raise ``Stopped``, so that drafts are removed and checkpoints closed.

    A script's shell starts what it puts in the background with SIGINT ignored, and nothing would
    then stop a run but SIGTERM; here it interrupts as always.
    """
    signal.signal(signal.SIGTERM, _stop)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signal's signature
    raise Stopped(number)


def leave(status: int) -> NoReturn:
    """Ends the process; the next signal would be a traceback of whatever runs at exit."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(status)


def _number(error: BaseException) -> int:
    return error.number if isinstance(error, Stopped) else signal.SIGINT


def _can_pass(error: BaseException) -> bool:
    """Whether the same stage could succeed a minute later: a peer or the network was at fault."""
    if isinstance(error, PluginError) and error.__cause__ is not None:
        return _can_pass(error.__cause__)
    if isinstance(error, FileNotFoundError | PermissionError | DiskFullError):
        return False
    return isinstance(error, RolloutError | LostProcessError | OSError)
