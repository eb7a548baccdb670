"""What a process tells beside the screen: lines in a file that whoever started it follows.

Only an exit status crosses DVC, so a flow names a file in the environment of what it starts, reads
what is added to it and shows that in the run's own logs. Without such a file nothing is told.
"""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

VARIABLE = "ASTRA_TOLD"
"""Names the file; set by a flow for the processes that it starts, not meant to be set by hand."""
EVERY_S = 20.0
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


class Heartbeat:
    """How far a loop is, told at intervals while somebody follows.

    Args:
        description: Of the loop.
        total: Rounds until it is done.
    """

    def __init__(self, description: str, total: int) -> None:
        self._description, self._total = description, total
        self._first: int | None = None
        self._done, self._started = 0, time.monotonic()

    def advance(self, n: int = 1) -> None:
        """Says that ``n`` more are done."""
        self._done += n
        if self._first is None:
            # A resumed loop begins with what it finds done, which took no time.
            self._first, self._started = self._done, time.monotonic()

    def line(self) -> str:
        """``training     12 of 40 (30 %) after 65 s, about 150 s left``."""
        spent = time.monotonic() - self._started
        own = self._done - (self._first or 0)
        share = f" ({self._done / self._total:.0%})" if self._total > 0 else ""
        line = f"{self._description:<13}{self._done} of {self._total}{share} after {spent:.0f} s"
        if own <= 0:
            return line
        return f"{line}, about {spent / own * max(self._total - self._done, 0):.0f} s left"


@contextmanager
def heartbeat(description: str, total: int, *, every_s: float | None = None) -> Iterator[Heartbeat]:
    """Yields a heartbeat that is told every ``every_s`` seconds, if anybody follows."""
    pause_s = EVERY_S if every_s is None else every_s
    beat, over = Heartbeat(description, total), threading.Event()
    if not is_followed():
        yield beat
        return

    def beat_on() -> None:
        while not over.wait(pause_s):
            tell(beat.line())

    thread = threading.Thread(target=beat_on, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield beat
    finally:
        over.set()
        thread.join()
