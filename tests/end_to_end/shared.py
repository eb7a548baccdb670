"""What takes minutes to make and is only read or copied: made once per session, for all workers."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from killer import end, seconds_of, start
from project import make_project, set_params

PLACE = Path("ä b", "astra source")
# To try again takes no time; the world is small already.
QUICK = "flow.retry_delay_s=0.1"
# Compiled by the run.
CODE = ("astra_core", "astra_parts", "flows", "tasks")
# Python imports it in every process of the run, servers and DVC among them: it notes who asks whom.
TRAP = """\
import os, sys
from pathlib import Path

def note(event, arguments):
    if event not in ("socket.getaddrinfo", "socket.connect"):
        return
    address = arguments[0] if event == "socket.getaddrinfo" else arguments[1]
    host = address[0] if isinstance(address, tuple) else address
    if event == "socket.connect" and not isinstance(address, tuple):
        return
    if host not in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "", None):
        with Path(__file__).with_name("hosts").open("a") as file:
            file.write(f"{host} asked by {sys.argv}\\n")

sys.addaudithook(note)
"""
# What stands before the first training.
PREPARED = ("prompts", "validation", "models", "rollouts")


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

    It is as a source archive gives it: no git, in a folder with spaces and an umlaut. It ran under
    a shell's usual umask, with ``TRAP`` in each process.

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

    def copy_to(self, folder: Path) -> Path:
        """A copy to change, with all that the run has left.

        The experiments of its MLflow store name the folder of the original.
        """
        return Path(shutil.copytree(self.folder, folder, symlinks=True))

    def copy_after(self, folder: Path, *stages: str) -> Path:
        """The project in git before its run, but for these stages, which are done.

        Prefect knows of the run: its tables, which a first run makes, take long to make.
        """
        shutil.copytree(self.fresh, folder, symlinks=True)
        ignored = shutil.ignore_patterns("*.pyc.*")
        for name in CODE:
            place = {"dirs_exist_ok": True, "ignore": ignored}
            shutil.copytree(self.folder / name, folder / name, **place)
        shutil.copytree(self.folder / ".prefect", folder / ".prefect", symlinks=True)
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        self.fill(folder, *stages)
        return folder

    def fill(self, folder: Path, *stages: str) -> None:
        """Gives a folder what these stages have left, and DVC's word that they are done."""
        lock = yaml.safe_load((self.folder / "dvc.lock").read_text("utf-8"))
        lock["stages"] = {name: lock["stages"][name] for name in stages}
        written = yaml.safe_dump(lock, sort_keys=False)  # as DVC spells it
        (folder / "dvc.lock").write_text(written, encoding="utf-8")
        # Not the cache of runs, out of which DVC would take the stages that are still to do.
        outs = [out["path"] for entry in lock["stages"].values() for out in entry.get("outs", ())]
        outs += ["reports/registration.json"] if "registration" in stages else []
        for name in (*outs, ".dvc/cache/files"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (self.folder / name).is_dir() else shutil.copy2
            copy(self.folder / name, folder / name)


def finished_project(factory: pytest.TempPathFactory) -> Finished:
    """The project of the session."""
    root = made_once(factory, "finished", _run_once)
    folder = root / PLACE
    return Finished(folder, root / "fresh", (folder / "runs.log").read_text("utf-8"))


def _run_once(root: Path) -> None:
    folder = make_project(root / PLACE)
    shutil.rmtree(folder / ".git")
    set_params(folder, QUICK)
    (folder / "tmp").mkdir()
    shutil.copytree(folder, root / "fresh", symlinks=True)
    (folder / "sitecustomize.py").write_text(TRAP, encoding="utf-8")
    folder.chmod(0o755)
    before = os.umask(0o022)
    try:
        assert start(folder).wait() == 0, (folder / "runs.log").read_text("utf-8")
    finally:
        os.umask(before)
        end(folder)
