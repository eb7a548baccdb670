"""Child processes that end as soon as their parent no longer needs them."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tasks.machine.parents import STARTED_BY


@dataclass(frozen=True, slots=True)
class Farewell:
    """How a process group is stopped.

    Attributes:
        grace_s: Seconds between the first SIGTERM and SIGKILL.
        again_s: Seconds between two SIGTERMs.
    """

    grace_s: float
    again_s: float


# A stage gets several SIGTERMs: an exception of a signal handler can be lost in a callback.
STAGE = Farewell(grace_s=10.0, again_s=4.0)
# A server treats a second SIGTERM as SIGKILL, and a worker first ends its flow run.
SERVER = Farewell(grace_s=25.0, again_s=25.0)
# A keeper first stops its server in the same way.
KEEPER = Farewell(grace_s=32.0, again_s=32.0)

KILL_GRACE_S = 5.0


def run_group(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_s: float | None = None,
    farewell: Farewell = STAGE,
    stdin: int | None = None,
    folder: Path | None = None,
    log: IO[str] | None = None,
) -> int:
    """The exit status of a command that runs in its own process group.

    Whatever ends the wait (the time limit, Ctrl-C, SIGTERM turned into an exception) ends the whole
    group first, grandchildren included, and reaps the child: a zombie would keep DVC's locks alive.

    Args:
        stdin: As in ``subprocess``; with PIPE its standard input ends when we do.
        folder: Its working folder; ours by default.

    Raises subprocess.TimeoutExpired if the command took longer than ``timeout_s``.
    """
    process: subprocess.Popen[bytes] | None = None
    try:
        with _delay_signals():
            process = subprocess.Popen(  # noqa: S603
                command,
                env={**environment, STARTED_BY: str(os.getpid())},
                stdin=stdin,
                cwd=folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        _under_way.add(process)
        status = process.wait(timeout_s)
    except BaseException:
        if process is not None:
            stop_group(process.pid, farewell, child=process)
        raise
    finally:
        if process is not None:
            _under_way.discard(process)
    if status != 0:
        # Processes that a crashed stage started have lost their owner.
        _signal_group(process.pid, signal.SIGKILL)
    return status


def start_process(
    command: Sequence[str],
    *,
    log: IO[bytes],
    environment: Mapping[str, str],
    stdin: int = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
) -> "subprocess.Popen[bytes]":
    """A process in its own group that runs on by itself, with its output in a log.

    ``stdin``: PIPE for a process that ends when its standard input does, and so with us.
    """
    return subprocess.Popen(  # noqa: S603
        command,
        env={**child_environment(), **environment},
        stdin=stdin,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=pass_fds,
    )


@contextmanager
def _delay_signals() -> Iterator[None]:
    """Delays signals that ask us to end until after the block.

    An exception of a handler while a process is being started would leave it without an owner.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    numbers = [n for n in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(n) is not None]
    before = {int(n): signal.signal(n, lambda number, _: arrived.append(number)) for n in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in arrived:
            signal.raise_signal(number)


def stop_group(
    group: int, farewell: Farewell, *, child: "subprocess.Popen[bytes] | None" = None
) -> None:
    """Returns when no process of the group is left.

    ``child``: that process, if it is our own child and must be reaped.
    """
    end = time.monotonic() + farewell.grace_s
    ask_again = 0.0
    try:
        while time.monotonic() < end and _lives(group, child):
            if time.monotonic() >= ask_again:
                _signal_group(group, signal.SIGTERM)
                ask_again = time.monotonic() + farewell.again_s
            time.sleep(0.05)
    finally:
        _signal_group(group, signal.SIGKILL)
        if child is not None:
            child.wait()
        # A killed process takes a moment to disappear, longer on a machine that swaps.
        end = time.monotonic() + KILL_GRACE_S
        while _lives(group, None) and time.monotonic() < end:
            time.sleep(0.01)


def stop_all() -> None:
    """Returns when every process that ``run_group`` runs in other threads has ended."""
    for process in tuple(_under_way):
        stop_group(process.pid, STAGE, child=process)


def stage_command(module: str, *arguments: str) -> list[str]:
    """The command ``python -m module arguments`` with the interpreter that runs us."""
    return [sys.executable, "-m", module, *arguments]


def child_environment() -> dict[str, str]:
    """Our environment for a child with our interpreter.

    Variables that keep libraries private, quiet and reproducible are added unless they are set.
    DVC runs commands in ``$SHELL``; a plain one makes a stage run the same on every machine.
    """
    # Imported late because of pydantic: a keeper must start at once.
    from tasks.machine.environment import PRIVATE, QUIET, STEADY

    own = {"ASTRA_PYTHON": sys.executable, "SHELL": "/bin/sh"}
    return {**PRIVATE, **QUIET, **STEADY, **os.environ, **own}


_under_way: set["subprocess.Popen[bytes]"] = set()


def group_members(group: int) -> Iterator[int]:
    """The processes of the group that still do something; zombies do not."""
    import psutil

    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                yield process.pid


def start_time(pid: int) -> float | None:
    """The time stamp at which the process with this id began; None if none does anything."""
    import psutil

    try:
        process = psutil.Process(pid)
        begun: float = process.create_time()
        return None if process.status() == psutil.STATUS_ZOMBIE else begun
    except psutil.NoSuchProcess:
        return None


def _lives(group: int, child: "subprocess.Popen[bytes] | None") -> bool:
    if child is not None:
        child.poll()
    return next(group_members(group), None) is not None


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)
