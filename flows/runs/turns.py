"""Whole runs of one folder take turns: a run reads params.yaml for as long as it works."""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.machine.console import say

LOCK = Path(".astra/run.lock")
"""Held by the run at work, and its words for those that wait."""


@contextmanager
def in_turn() -> Iterator[None]:
    """A context that one process at a time has in a folder; another waits, after a line."""
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            say(f"{'run':<13}waits for another run: {file.read() or 'it has just begun'}")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"(PID {os.getpid()}): {' '.join([Path(sys.argv[0]).name, *sys.argv[1:]])}")
        file.flush()
        yield
