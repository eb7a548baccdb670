"""Whether a stage is up to date in DVC; ``python -m tasks.pipeline.reproduction STAGE`` runs it.

The command is ``dvc repro --single-item STAGE`` with three differences. DVC's messages go to a log,
so that the screen belongs to the stage; a failure, also of DVC itself, is left where
``tasks.pipeline.failures.read_failure`` finds it, with a note whether a retry could help; and if
another run holds what the stage reads or writes, the command waits its turn.
"""

import logging
import re
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from astra_core.errors import ConfigurationError, DiskFullError
from tasks.machine.console import Parser, complain, say
from tasks.machine.garbage import collect_rarely
from tasks.machine.parents import end_group_with_parent
from tasks.machine.privacy import keep_private
from tasks.machine.telling import tell_crash
from tasks.pipeline import failures
from tasks.pipeline.dvc_files import LOCK_FILE, remove_damaged, set_aside_cut
from tasks.pipeline.workspace import prepare_dvc

# Seconds between two checks whether another run still holds the stage.
TURN_S = 0.5
NOT_MADE = "not made yet"
asked_to_stop = threading.Event()
"""Set by SIGTERM."""


class AtWorkError(ConfigurationError):
    """Another process works in the folder, such as a run."""


def is_current(stage: str) -> bool:
    """Whether DVC finds one stage unchanged; takes tens of milliseconds and starts nothing.

    Raises ConfigurationError if the folder is no DVC project, or has no such stage.
    """
    try:
        return not _status([stage], rule=f"know stage '{stage}'", way_out="see dvc.yaml")
    except AtWorkError:
        # Another process works here: the stage's own process waits for it and says so.
        return False


def changes() -> dict[str, list[str]]:
    """What DVC finds changed, such as ``params.yaml modified``, by stage; only changed ones.

    Raises ConfigurationError if the folder is no DVC project, its dvc.yaml cannot be read, or, an
    AtWorkError, another process works there.
    """
    found = _status(None, rule="be able to read the project", way_out="see 'astra doctor'")
    return {
        stage: _reasons(entries) if _was_made(stage) else [NOT_MADE]
        for stage, entries in found.items()
    }


def _status(targets: list[str] | None, *, rule: str, way_out: str) -> dict[str, list[Any]]:
    """DVC's status of some stages, or of all.

    ``rule``: what DVC must be able to do, for the error; ``way_out``: how it can.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    hush_dvc()
    prepare_dvc()
    try:
        with Repo(".") as repo:
            found: dict[str, list[Any]] = repo.status(targets=targets)
    except DvcException as error:
        busy = lock_error(error)
        if busy is not None:
            # DVC's own words advise to remove its lock, which a run at work holds.
            msg = f"no other process may be at work here, got {blocker(busy)}; try again later"
            raise AtWorkError(msg) from error
        if set_aside_cut(error):
            return _status(targets, rule=rule, way_out=way_out)
        msg = f"DVC must {rule}, got: {_one_line(error)}; {way_out}"
        raise ConfigurationError(msg) from error
    return found


def _was_made(stage: str) -> bool:
    """Whether the lock has the stage; it is read as text, as parsing takes a tenth of a second."""
    try:
        return f"\n  {stage}:\n" in LOCK_FILE.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _reasons(entries: list[Any]) -> list[str]:
    """``data/valid modified`` for each path of DVC's answer; its plain texts stay as they are."""
    reasons: list[str] = []
    for entry in entries:
        if not isinstance(entry, dict):
            reasons.append(str(entry))
            continue
        outs = entry.get("changed outs", {})
        if outs and all(state == "deleted" for state in outs.values()):
            return [NOT_MADE]
        for paths in entry.values():
            for path, state in paths.items():
                word = state if isinstance(state, str) else ", ".join(map(str, state))
                reasons.append(f"{path} {word}")
    return reasons


def reproduce(stage: str, *, force: bool = False) -> int:
    """The exit status, after the stage ran or DVC restored the results of an equal run."""
    failures.clear_failure(stage)
    started = time.monotonic()
    try:
        memory = hush_dvc(failures.LOGS / f"{stage}.dvc.log")
        prepare_dvc()
        _reproduce_in_turn(stage, force=force)
    except Exception as error:  # noqa: BLE001 - the boundary to DVC
        return _explain(error, stage)
    if memory.restored and remove_damaged(stage):
        return reproduce(stage, force=force)
    if memory.restored:
        say(f"{stage:<13}restored from DVC's cache ({time.monotonic() - started:.1f} s)")
    return 0


def _reproduce_in_turn(stage: str, *, force: bool) -> None:
    """Lets DVC run the stage, as soon as no other process holds its files."""
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    is_told = False
    while True:
        try:
            with Repo(".") as repo:
                repo.reproduce(targets=[stage], single_item=True, force=force)
        except DvcException as error:
            if set_aside_cut(error):
                continue
            busy = lock_error(error)
            if busy is None or asked_to_stop.wait(TURN_S):
                raise
            if not is_told:
                say(f"{stage:<13}waits for another run: {blocker(busy)}")
            is_told = True
        else:
            return


def lock_error(error: BaseException | None) -> BaseException | None:
    """The LockError among an exception and its causes; DVC wraps it in its own."""
    from dvc.lock import LockError

    while error is not None and not isinstance(error, LockError):
        error = error.__cause__
    return error


def blocker(error: BaseException) -> str:
    """Who holds the lock, in DVC's words such as ``(PID 12): dvc repro``, if DVC knows."""
    found = re.search(r"\(PID \d+\):.*", str(error))
    if found:
        return found[0]
    with suppress(OSError):
        return f"(PID {Path('.dvc/tmp/lock').read_text(encoding='utf-8').strip()}): DVC"
    return "DVC is at work"


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status, after what the command line asks for is done."""
    collect_rarely()
    parser = Parser(prog="python -m tasks.pipeline.reproduction")
    parser.add_argument("stage")
    parser.add_argument("--force", action="store_true", help="run it even if it is up to date")
    asked = parser.parse_args(arguments)
    # Before DVC is imported: it reads the umask once and gives its files that mode.
    keep_private()
    # The stage gets the same signal and ends; DVC then returns from it and frees its locks. It is
    # a handler and not SIG_IGN, because the stage would inherit an ignored signal.
    signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.set())
    end_group_with_parent()
    return reproduce(asked.stage, force=asked.force)


def _explain(error: Exception, stage: str) -> int:
    """The exit status, after saying why DVC gave up, unless the stage has left its own reason."""
    from dvc.stage.exceptions import StageCmdFailedError

    busy = lock_error(error)
    # Who stopped a run that waits says so.
    if failures.read_failure(stage) is not None or (busy is not None and asked_to_stop.is_set()):
        return 1
    if busy is not None:
        # DVC's own words advise to remove its lock, which somebody holds.
        told = type(busy)(f"no other process may be at work here, got {blocker(busy)}")
        return _tell(told, stage, retryable=True)
    full, cause = failures.plain(error), error.__cause__ or error
    if isinstance(full, DiskFullError):
        return _tell(full, stage, retryable=False)
    if not isinstance(cause, StageCmdFailedError):
        return _tell(cause, stage, retryable=False)
    if asked_to_stop.is_set():
        return 1  # who stopped the run says so
    status = _one_line(cause).rpartition(" ")[2]
    words = failures.cut_off(int(status)) if status.lstrip("-").isdecimal() else "was cut off"
    message = f"stage {stage} {words}; {failures.LOGS}/{stage}.log"
    failure = failures.StageFailure("StageCrash", f"{message} may say why", retryable=True)
    failures.write_failure(failure, stage)
    complain(f"error: {failure.message}")
    tell_crash(failures.LOGS / f"{stage}.log")
    return 1


def _tell(error: BaseException, stage: str, *, retryable: bool) -> int:
    message = f"DVC cannot run stage {stage}: {_one_line(error)}"
    failures.write_failure(failures.StageFailure(type(error).__name__, message, retryable), stage)
    complain(f"error: {message}")
    return 1


class _Memory(logging.Handler):
    """Notices the one message of DVC that matters to a person."""

    restored = False

    def emit(self, record: logging.LogRecord) -> None:
        self.restored = self.restored or "is cached - skipping run" in str(record.msg)


class _Log(logging.FileHandler):
    """A log file of DVC's messages; a full disk is reported by what fails, not by the log."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Does nothing, where logging would print."""


def hush_dvc(log: Path | None = None) -> _Memory:
    """Sends DVC's messages to ``log``, or nowhere if there is none."""
    import dvc.logger
    import dvc.progress  # noqa: F401 - its logger decides on progress bars

    memory = _Memory()
    handlers: list[logging.Handler] = [memory]
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(_Log(log, mode="w", encoding="utf-8"))
    for name in ("dvc", "dvc_objects", "dvc_data"):
        logger = logging.getLogger(name)
        logger.handlers = list(handlers)
        logger.propagate = False
    logging.getLogger("dvc.progress").setLevel(logging.CRITICAL)
    return memory


def _one_line(error: Any) -> str:
    return " ".join(str(error).split())


if __name__ == "__main__":
    sys.exit(main())
