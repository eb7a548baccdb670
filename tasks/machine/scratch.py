"""Folders for what is needed for a moment; one whose process was killed is removed by the next.

A folder of ``tempfile`` survives a kill for ever, and it may hold attacks.
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
        # Asked once, and only where something was left.
        alive = alive or {_process_name(process) for process in psutil.process_iter()}
        if folder.name.rpartition("-")[0] not in alive:
            shutil.rmtree(folder, ignore_errors=True)


def _process_name(process: psutil.Process) -> str:
    """Number and start of a process: a later one of the same number has another name."""
    try:
        return f"{process.pid}-{process.create_time() * 100:.0f}"
    except psutil.Error:
        return ""
