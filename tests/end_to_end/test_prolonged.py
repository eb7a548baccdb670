"""More training steps with the real DVC: an earlier result goes on, here and in another clone."""

import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml
from killer import outputs
from project import environment, run_in, set_params
from shared import PREPARED, finished_project

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]

# A schedule that does not look ahead, and a last evaluation that only the end of a run asks for.
SHORT = (
    "training.schedule.options.kind=constant",
    "training.training_steps=4",
    "training.eval_every=3",
)
DONE = (*PREPARED, "training")
GOES_ON = "training     continues from models/checkpoint, training step 4"


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A committed project after four training steps, whose results are in a remote."""
    root = tmp_path_factory.mktemp("prolonged")
    folder = finished_project(tmp_path_factory).copy_after(root / "project", *PREPARED)
    set_params(folder, *SHORT)
    run_in(folder, "-m", "dvc", "remote", "add", "--default", "store", str(root / "store"))
    run_in(folder, "-m", "dvc", "repro", "-q", "training")
    run_in(folder, "-m", "dvc", "push", "-q", *DONE)
    _git(folder, "add", "-A")
    _git(folder, "commit", "-qm", "four steps")
    return folder


@pytest.fixture(scope="module")
def long(origin, tmp_path_factory):
    """What six training steps leave where nothing was trained before."""
    folder = _clone(origin, tmp_path_factory.mktemp("long") / "project")
    set_params(folder, "training.training_steps=6")
    shutil.rmtree(folder / "models/checkpoint")
    lock = yaml.safe_load((folder / "dvc.lock").read_text("utf-8"))
    del lock["stages"]["training"]
    (folder / "dvc.lock").write_text(yaml.safe_dump(lock), encoding="utf-8")
    run_in(folder, "-m", "dvc", "repro", "-q", "training")
    return _files(folder)


def _files(folder):
    """The digest of every output, without how dvc.lock spells it."""
    return {name: digest for name, digest in outputs(folder).items() if "dvc.lock" not in name}


def _git(folder, *words):
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *who, *words], cwd=folder, check=True)


def _clone(origin, folder):
    """The commit and its results, in a folder where no run has been."""
    subprocess.run(["git", "clone", "-q", str(origin), str(folder)], check=True)
    run_in(folder, "-m", "dvc", "pull", "-q", *DONE)
    assert not (folder / "runs").exists()
    return folder


def test_a_clone_continues_from_what_it_checked_out(origin, long, tmp_path):
    folder = _clone(origin, tmp_path / "clone")
    short = _files(folder)
    set_params(folder, "training.training_steps=6")
    done = run_in(folder, "-m", "dvc", "repro", "training")

    assert GOES_ON in done.stdout.splitlines()
    assert long == _files(folder)
    assert "models/checkpoint/checkpoint.json" in long
    # There and back again: both results are restored, and neither is trained.
    _git(folder, "checkout", "-q", "--", "params.yaml", "dvc.lock")
    run_in(folder, "-m", "dvc", "checkout", "-q", *DONE)
    assert short == _files(folder)
    set_params(folder, "training.training_steps=6")
    again = run_in(folder, "-m", "dvc", "repro", "training")
    assert "training  " not in again.stdout
    assert long == _files(folder)


def test_a_kill_while_it_continues_changes_nothing(origin, long, tmp_path):
    folder = _clone(origin, tmp_path / "clone")
    set_params(folder, "training.training_steps=6")
    for wanted in ("step_000004", "step_000005"):
        _killed_at(folder, f"runs/*/checkpoints/{wanted}")
    run_in(folder, "-m", "dvc", "repro", "-q", "training")

    assert long == _files(folder)


def _killed_at(folder, pattern):
    """Kills ``dvc repro training``, and the stage with it, once such a path is there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dvc", "repro", "-q", "training"],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    end = time.monotonic() + 300
    while not list(folder.glob(pattern)):
        assert process.poll() is None, "training ended before it could be killed"
        assert time.monotonic() < end
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    # The stage notices that DVC is gone.
    while _is_training(folder):
        assert time.monotonic() < end
        time.sleep(0.1)


def _is_training(folder):
    from killer import processes_of

    return any(process.cmdline()[-1:] == ["training"] for process in processes_of(folder))
