"""The run's logs in Prefect: the lines on the screen, of this process and of its stages.

A stage is a process that DVC starts, so its lines arrive in a file (``tasks.machine.telling``) that
a thread follows while the stage runs. If a stage is silent for a while, a line says that it is at
work.
"""

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prefect.exceptions import MissingContextError
from prefect.logging import get_run_logger

from tasks.machine.scratch import scratch_folder
from tasks.machine.telling import VARIABLE
from tasks.machine.variables import variable_set

POLL_S = 0.5
SILENCE_S = 60.0
"""Seconds of silence after which a line for debugging says that the stage is still at work."""

Logger = logging.Logger | logging.LoggerAdapter[Any]


@contextmanager
def told_to_run(subject: str = "", *, silence_s: float = SILENCE_S) -> Iterator[None]:
    """A context in which every line said here, or by a process started here, is in the run's logs.

    Contexts may be nested: a task's lines then belong to the task, those around it to the flow.
    Outside of a run of Prefect nothing is followed.

    ``subject``: the subject of the line that says that a silent stage is at work; empty for no such
    line.
    """
    try:
        logger = get_run_logger()
    except MissingContextError:
        yield
        return
    with scratch_folder() as folder:
        follower = _Follower(folder / "told", logger, subject=subject, silence_s=silence_s)
        with variable_set(VARIABLE, str(follower.file)):
            follower.start()
            try:
                yield
            finally:
                follower.finish()


class _Follower:
    """Reads what is added to a file and logs it."""

    def __init__(self, file: Path, logger: Logger, *, subject: str, silence_s: float) -> None:
        self.file = file
        self._logger, self._subject, self._silence_s = logger, subject, silence_s
        self._place, self._over = 0, threading.Event()
        self._begun = self._heard = time.monotonic()
        self._thread = threading.Thread(target=self._follow, name="told", daemon=True)

    def start(self) -> None:
        """Begins to follow the file."""
        self.file.touch(mode=0o600)
        self._thread.start()

    def finish(self) -> None:
        """Returns when every line is logged."""
        self._over.set()
        self._thread.join()
        self._read()

    def _follow(self) -> None:
        while not self._over.wait(POLL_S):
            self._read()
            now = time.monotonic()
            if self._subject and now - self._heard >= self._silence_s:
                self._heard = now
                spent = now - self._begun
                self._logger.debug("%-13sat work for %.0f s", self._subject, spent)

    def _read(self) -> None:
        with self.file.open("rb") as file:
            file.seek(self._place)
            added = file.read()
        # An incomplete line is read the next time.
        whole = added[: added.rfind(b"\n") + 1]
        self._place += len(whole)
        for line in whole.splitlines():
            self._heard = time.monotonic()
            self._log(line)

    def _log(self, line: bytes) -> None:
        try:
            level, text = json.loads(line)
            number = logging.getLevelNamesMapping()[level]
        except (ValueError, KeyError, TypeError):
            # A full disk can leave half a line.
            return
        self._logger.log(number, "%s", text)
