"""A sweep runs only what is missing: of what a run has made, and where it was killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from project import environment
from shared import finished_project

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

COMMAND = ["sweep", "--set", "training.training_steps=6,2", "--jobs", "1"]
PATIENCE_S = 600.0


@pytest.mark.parametrize("is_killed", [False, pytest.param(True, marks=pytest.mark.wide)])
def test_a_sweep_shares_stages_survives_a_kill_and_offers_the_best(tmp_path_factory, is_killed):
    folder = finished_project(tmp_path_factory).copy_to(tmp_path_factory.mktemp("sweep") / "ü b")
    shutil.rmtree(folder / "mlruns")
    for database in folder.glob("mlflow.db*"):
        database.unlink()
    before = {name: (folder / name).read_bytes() for name in ("params.yaml", "dvc.lock")}
    kept = _kept_by_a_kill(folder) if is_killed else []
    words = _start(folder).communicate(timeout=PATIENCE_S)[0]

    state = "finished" if is_killed else "done    "
    assert words.count(f"{state}     training.training_steps=6") == 1, words
    assert "done         training.training_steps=2" in words
    assert {*kept} <= {path.read_bytes() for path in _results(folder)}
    (done,) = [path for path in _results(folder) if "training_steps=6" in path.read_text("utf-8")]
    # Of the point that astra run had run already nothing ran again.
    log = done.with_suffix(".log").read_text("utf-8")
    # Six stages, and once more if this is the point that was registered.
    assert log.count("restored from DVC's cache") in {6, 12}
    assert "attack success" not in log
    assert "candidate    attacker version 1" in words
    assert "adopt it with: astra run --set training.training_steps=" in words
    assert before == {name: (folder / name).read_bytes() for name in before}
    assert [] == [path for path in (folder / "sweeps/points").iterdir() if path.is_dir()]
    (record,) = [json.loads(path.read_text()) for path in folder.glob("sweeps/*/sweep.json")]
    assert [1, 1] == [len(row["run_ids"]) for row in record["settings"]]
    assert all(run_id for row in record["settings"] for run_id in row["run_ids"])


def _kept_by_a_kill(folder):
    """The result of the first point, when the sweep is killed in the second."""
    first = _start(folder)
    _wait_for(lambda: len(_results(folder)) == 1 and _logs(folder, "validation") == 2)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    _wait_for(lambda: not _working_below(folder / "sweeps"))
    return [path.read_bytes() for path in _results(folder)]


def _start(folder):
    return subprocess.Popen(
        [sys.executable, "-m", "flows.cli", *COMMAND],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _results(folder):
    return sorted((folder / "sweeps/points").glob("*.json"))


def _logs(folder, stage):
    """Points that are past this stage."""
    texts = [path.read_text("utf-8") for path in (folder / "sweeps/points").glob("*.log")]
    return sum(f"{stage} " in text for text in texts)


def _working_below(folder):
    found = []
    for process in psutil.process_iter(["cwd", "status"]):
        cwd = process.info["cwd"]
        if cwd and Path(cwd).is_relative_to(folder) and process.info["status"] != "zombie":
            found.append(process)
    return found


def _wait_for(is_so):
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.2)
