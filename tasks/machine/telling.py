"""What a process reports beside the screen: lines in a file that the process's parent follows.

DVC passes on only an exit status. So a flow names a file in the environment of what it starts,
reads what is added to it and shows that in the run's own logs. Without such a file nothing is
reported.
"""

import json
import os
from contextlib import suppress
from pathlib import Path

VARIABLE = "ASTRA_TOLD"
"""The variable that names the file; a flow sets it for the processes that it starts."""
DEBUG, INFO, WARNING, ERROR = "DEBUG", "INFO", "WARNING", "ERROR"
# How many frames of a trace are shown; the log file has the rest.
MAX_TAIL = 25
_ERRORS = ("error:", "bug in stage")
# What faulthandler writes when compiled code crashes: files and functions, never a text.
_CRASH = ("Fatal Python error", "Current thread", "Thread 0x", '  File "')


def tell(line: str, *, level: str = INFO) -> None:
    """Adds a line to the file that a parent follows, if there is one; a failed write is ignored.

    ``line``: fit to be shown: what quotes an attack is masked already.
    """
    place = os.environ.get(VARIABLE)
    if not place:
        return
    with suppress(OSError), Path(place).open("a", encoding="utf-8") as file:
        # One write per line, so that the lines of several processes do not mix.
        file.write(json.dumps([level, line]) + "\n")


def tell_complaint(line: str) -> None:
    """Reports a line of standard error, as an error or a warning by how it begins."""
    tell(line, level=ERROR if line.startswith(_ERRORS) else WARNING)


def tell_tail(trace: str) -> None:
    """Reports the end of a trace as one message."""
    tell("\n".join(trace.rstrip().splitlines()[-MAX_TAIL:]), level=ERROR)


def tell_crash(log: Path) -> None:
    """Reports where compiled code crashed, if the log says so; nothing that a library wrote."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    places = [line for line in lines if line.startswith(_CRASH)]
    if places:
        tell("\n".join(places[:MAX_TAIL]), level=ERROR)
