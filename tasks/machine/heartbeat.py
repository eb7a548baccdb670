"""How far a stage is: a line at intervals where there is no bar, with the estimated time left."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY_S = 20.0
AT_WORK = "at work for"  # a stage that has no loop

Show = Callable[[str], None]


class Heartbeat:
    """How far a stage or a loop of it is.

    ``total``: rounds of about a length until a loop is done; 0 where there are none.
    """

    def __init__(self, description: str, total: int = 0) -> None:
        self.description = description
        self._total, self._note = total, ""
        self._first: int | None = None
        self._done = 0
        self._started = self._latest = time.monotonic()

    def advance(self, n: int = 1, *, note: str = "") -> None:
        """Says that ``n`` more are done, and with ``note`` what came of it so far."""
        self._done += n
        self._note = note or self._note
        if n or self._first is None:
            self._latest = time.monotonic()
        if self._first is None:
            # A resumed loop begins with rounds that are done, which took no time in this run.
            self._first, self._started = self._done, self._latest

    def seconds_left(self) -> float | None:
        """Estimated seconds until it is done, at the pace of this run; None before its rounds.

        An earlier run says little: other settings or a busy machine change the pace many times.
        None, too, where a round takes far longer than those before it, or the last one longer.
        """
        own, rest = self._done - (self._first or 0), self._total - self._done
        if not own or not self._total:
            return None
        pace = (self._latest - self._started) / own
        waited = time.monotonic() - self._latest
        if waited <= pace:
            return max(pace * rest - waited, 0.0)
        return waited * (rest - 1) if rest > 1 and waited <= 2 * pace else None

    def words(self) -> str:
        """``success 62%, about 150 s left``, the text beside a bar."""
        left = self.seconds_left()
        known = [] if left is None else [f"about {left:.0f} s left"]
        return ", ".join([*([self._note] if self._note else []), *known])

    def line(self) -> str:
        """All: ``training     12 of 40 (30%) after 65 s, success 62%, about 150 s left``."""
        spent = time.monotonic() - self._started
        begun = f"{self.description:<12} {AT_WORK} {spent:.0f} s"
        if self._total > 0:
            share = f"{self._done} of {self._total} ({self._done / self._total:.0%})"
            begun = f"{self.description:<12} {share} after {spent:.0f} s"
        words = self.words()
        return f"{begun}, {words}" if words else begun


# The heartbeats of a stage and of a loop in it; the last one is where the work is.
_open: list[Heartbeat] = []


@contextmanager
def heartbeat(description: str, total: int = 0, *, show: Show) -> Iterator[Heartbeat]:
    """Yields a heartbeat whose line is shown at intervals; a loop's replaces that of its stage."""
    around = _open[-1] if _open else None
    beat, over = Heartbeat(description, total), threading.Event()

    def beat_on() -> None:
        while not over.wait(EVERY_S):
            show(_open[-1].line())

    _open.append(beat)
    thread = threading.Thread(target=beat_on, name="heartbeat", daemon=True)
    if around is None:
        thread.start()
    try:
        yield beat
    finally:
        over.set()
        if around is None:
            thread.join()
        _open.remove(beat)
