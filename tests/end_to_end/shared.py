"""What takes minutes to make and is only read or copied: made once per session, for all workers."""

import fcntl
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from killer import end, seconds_of, start
from project import make_project, set_params


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder that ``make`` has filled: by whichever worker came first; the others wait."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # each worker has a folder of its own in that of the session
    folder, done = root / name, root / f"{name}.done"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


@dataclass(frozen=True)
class Finished:
    """A small project through which ``astra run`` went once: to be read or copied, not changed.

    Attributes:
        folder: The project.
        fresh: The same before its run.
        said: What the run printed.
    """

    folder: Path
    fresh: Path
    said: str

    @property
    def seconds(self) -> dict[str, float]:
        """What each stage took."""
        return seconds_of(self.said)

    def copy_to(self, folder: Path, *, with_store: bool = False) -> Path:
        """A copy to change, its results and DVC's cache included.

        Args:
            folder: Not there yet.
            with_store: MLflow's store too, whose experiments name the folder of the original.
        """
        shutil.copytree(self.folder, folder, symlinks=True)
        if not with_store:
            shutil.rmtree(folder / "mlruns")
            for file in folder.glob("mlflow.db*"):
                file.unlink()
        return folder


def finished_project(factory: pytest.TempPathFactory) -> Finished:
    """The project of the session."""
    root = made_once(factory, "finished", _run_once)
    folder = root / "project"
    return Finished(folder, root / "fresh", (folder / "runs.log").read_text("utf-8"))


def _run_once(root: Path) -> None:
    folder = make_project(root / "project")
    set_params(folder, "flow.retry_delay_s=0.1")
    (folder / "tmp").mkdir()
    shutil.copytree(folder, root / "fresh", symlinks=True)
    try:
        assert start(folder).wait() == 0, (folder / "runs.log").read_text("utf-8")
    finally:
        end(folder)
