"""Whole runs of one folder take turns: a run reads params.yaml for as long as it works."""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from astra_core.errors import ConfigurationError
from tasks.machine.console import say

LOCK = Path(".astra/run.lock")
"""Held by the run at work, and its words for those that wait."""


@contextmanager
def in_turn(*, waits: bool = True) -> Iterator[None]:
    """A context that one process at a time has in a folder; another waits, after a line.

    Raises ConfigurationError if it shall not wait and another has it.
    """
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            other = file.read() or "it has just begun"
            if not waits:
                msg = f"no run may be at work here, got one {other}; try again when it has ended"
                raise ConfigurationError(msg) from None
            say(f"{'run':<13}waits for another run: {other}")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"(PID {os.getpid()}): {' '.join([Path(sys.argv[0]).name, *sys.argv[1:]])}")
        file.flush()
        yield
