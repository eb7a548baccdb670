"""Child processes that never outlive the wish for them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

STOP_GRACE_S = 10.0


def run_group(
    command: Sequence[str], *, environment: Mapping[str, str], timeout_s: float | None = None
) -> int:
    """The exit status of a command that runs in a process group of its own.

    Whatever ends the wait (the time limit, Ctrl-C, SIGTERM turned into an exception) ends the whole
    group first, grandchildren included, and reaps the child: a zombie would keep DVC's locks alive.

    Raises:
        subprocess.TimeoutExpired: The command took longer than ``timeout_s``.
    """
    process = subprocess.Popen(command, env=environment, start_new_session=True)  # noqa: S603
    try:
        status = process.wait(timeout_s)
    except BaseException:
        stop_group(process)
        raise
    if status != 0:
        # What a crashed stage had started is nobody's any more.
        _signal_group(process.pid, signal.SIGKILL)
    return status


def stop_group(process: "subprocess.Popen[bytes]", *, grace_s: float = STOP_GRACE_S) -> None:
    """Returns when the group ``process`` leads is gone: asked, then killed after ``grace_s``."""
    end = time.monotonic() + grace_s
    try:
        while time.monotonic() < end:
            # More than once: an exception that a signal handler raises can be lost in a callback.
            _signal_group(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(min(4.0, grace_s))
                return
    finally:
        _signal_group(process.pid, signal.SIGKILL)
        process.wait()


def stage_command(module: str, *arguments: str) -> list[str]:
    """``python -m module arguments`` with the interpreter that runs us."""
    return [sys.executable, "-m", module, *arguments]


def child_environment(additions: Mapping[str, str]) -> dict[str, str]:
    """Our environment, and ``additions`` where they are not set, for a child on our interpreter.

    DVC gives commands to ``$SHELL``; a plain one makes a stage run alike on every machine.
    """
    own = {"ASTRA_PYTHON": sys.executable, "SHELL": "/bin/sh"}
    return {**additions, **os.environ, **own}


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)
