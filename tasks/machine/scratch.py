"""Temporary folders; one whose process was killed is removed by the next process.

A folder of ``tempfile`` would survive a kill for ever, and it may hold attacks.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

SCRATCH = Path(".astra/scratch")


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yields an empty folder that only its owner can read, and removes it afterwards."""
    _remove_leftovers()
    SCRATCH.mkdir(parents=True, exist_ok=True)
    prefix = f"{_process_name(psutil.Process())}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=SCRATCH.absolute()) as name:
        yield Path(name)


def _remove_leftovers() -> None:
    """Removes the folders of processes that are gone."""
    alive = None
    for folder in SCRATCH.glob("*"):
        # Looked up once, and only if something was left.
        alive = alive or {_process_name(process) for process in psutil.process_iter()}
        if folder.name.rpartition("-")[0] not in alive:
            shutil.rmtree(folder, ignore_errors=True)


def _process_name(process: psutil.Process) -> str:
    """A name from a process's number and start, so that a later one of the same number differs."""
    try:
        return f"{process.pid}-{process.create_time() * 100:.0f}"
    except psutil.Error:
        return ""
