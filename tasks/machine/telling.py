"""What a process tells beside the screen: lines in a file that whoever started it follows.

Only an exit status crosses DVC, so a flow names a file in the environment of what it starts, reads
what is added to it and shows that in the run's own logs. Without such a file nothing is told.
"""

import json
import os
from contextlib import suppress
from pathlib import Path

VARIABLE = "ASTRA_TOLD"
"""Names the file; set by a flow for the processes that it starts, not meant to be set by hand."""
INFO, WARNING, ERROR = "INFO", "WARNING", "ERROR"
# The frames of a trace that are worth a line each; the file of the log has the rest.
MAX_TAIL = 25
_ERRORS = ("error:", "bug in stage")
# What faulthandler writes where compiled code crashed: files and functions, never a text.
_CRASH = ("Fatal Python error", "Current thread", "Thread 0x", '  File "')


def is_followed() -> bool:
    """Whether anybody follows what is told here."""
    return bool(os.environ.get(VARIABLE))


def tell(line: str, *, level: str = INFO) -> None:
    """Adds a line to the file that is followed, if one is; what cannot be written is not told.

    Args:
        line: As it may be shown: what quotes an attack is masked already.
        level: INFO, WARNING or ERROR.
    """
    place = os.environ.get(VARIABLE)
    if not place:
        return
    with suppress(OSError), Path(place).open("a", encoding="utf-8") as file:
        # One write each, so that the lines of several processes do not mix.
        file.write(json.dumps([level, line]) + "\n")


def tell_complaint(line: str) -> None:
    """Tells what is said on standard error, as an error or a warning by how it begins."""
    tell(line, level=ERROR if line.startswith(_ERRORS) else WARNING)


def tell_tail(trace: str) -> None:
    """Tells the end of a trace that may be shown, as one message.

    Args:
        trace: Many lines, masked.
    """
    tell("\n".join(trace.rstrip().splitlines()[-MAX_TAIL:]), level=ERROR)


def tell_crash(log: Path) -> None:
    """Tells where compiled code crashed, if the log says so; of the libraries' words nothing."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    places = [line for line in lines if line.startswith(_CRASH)]
    if places:
        tell("\n".join(places[:MAX_TAIL]), level=ERROR)
