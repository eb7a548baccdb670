"""What a run leaves is its owner's alone, and nobody outside of this machine is asked."""

import os
import stat

import pytest
from project import COPIED, make_project, run_in, set_params
from shared import TRAP, finished_project

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

OWN = {*COPIED, ".git", "sitecustomize.py", "hosts", "runs.log", "tmp"}
OTHERS = stat.S_IRWXG | stat.S_IRWXO


@pytest.fixture(
    scope="module",
    params=["astra run", pytest.param("dvc repro, in two processes", marks=pytest.mark.wide)],
)
def finished(request, tmp_path_factory):
    """A project that ran under a shell's usual umask, with the trap in all of its processes."""
    if request.param == "astra run":
        return finished_project(tmp_path_factory).folder
    folder = make_project(tmp_path_factory.mktemp("private") / "project")
    set_params(folder, "machine.num_processes=2", "training.training_steps=3")
    folder.chmod(0o755)
    (folder / "sitecustomize.py").write_text(TRAP, encoding="utf-8")
    before = os.umask(0o022)
    try:
        run_in(folder, "-m", "dvc", "repro", "-q")
    finally:
        os.umask(before)
    return folder


def _open_to_others(folder):
    """Every file below ``folder`` to which no closed folder bars the way, and that others read."""
    for path in sorted(folder.iterdir()):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode) and mode & stat.S_IXOTH | mode & stat.S_IXGRP:
            yield from _open_to_others(path)
        elif stat.S_ISREG(mode) and mode & OTHERS:
            yield path


def test_nobody_else_can_read_what_a_run_leaves(finished):
    made = [path for path in finished.iterdir() if path.name not in OWN]
    found = [path for place in made if place.is_dir() for path in _open_to_others(place.parent)]
    shown = {path.relative_to(finished).parts[0] for path in found} - OWN

    assert {".dvc", "data", "models", "reports", "runs", "mlruns", "mlflow.db"} <= {
        path.name for path in made
    }
    # The names and digests of what DVC keeps, for git, and compiled code: no text.
    assert shown <= {"dvc.lock", "__pycache__"}


def test_only_what_dvc_copies_has_a_mode_of_the_shells(finished):
    """DVC gives its own copies modes that follow the umask of who called it; their folder is shut.

    MLflow copies them with their modes, into a folder that is shut too. All else is closed by
    itself, also once its folder is opened.
    """
    loose = [
        path.relative_to(finished).parts
        for name in (".astra", "runs", "mlruns", "models", "reports", "data")
        for path in (finished / name).rglob("*")
        if path.is_file() and path.lstat().st_mode & OTHERS
    ]

    assert {parts[0] for parts in loose} <= {"data", "models", "reports", "mlruns"}


def test_a_whole_run_asks_nobody_outside_of_this_machine(finished):
    hosts = finished / "hosts"

    assert not hosts.exists(), hosts.read_text(encoding="utf-8")
    # The trap itself works: a name that cannot exist is asked for and noted.
    code = "import contextlib, socket\nwith contextlib.suppress(OSError):\n    "
    run_in(finished, "-c", f"{code}socket.getaddrinfo('name.invalid', 80)")
    assert "name.invalid" in hosts.read_text(encoding="utf-8")
    hosts.unlink()
