"""Two rounds of hardening, each with a fresh attacker, whole and after a kill."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from project import environment, set_params
from shared import finished_project

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

SMALL = (
    *("hardening.training_steps=4", "hardening.num_findings=16", "training.training_steps=2"),
    *("training.early_stopping.patience=null", "evaluation.strategy_calls=0"),
    *("evaluation.bandit_calls=0", "hardening.max_over_refusal=1.0"),
    *("hardening.max_success=0.0", "hardening.lora={rank: 4}"),
)
PATIENCE_S = 900.0


@pytest.mark.parametrize("is_killed", [False, pytest.param(True, marks=pytest.mark.wide)])
def test_two_rounds_have_a_cross_play_and_versions(tmp_path_factory, is_killed):
    folder = finished_project(tmp_path_factory).copy_to(tmp_path_factory.mktemp("harden") / "ü b")
    shutil.rmtree(folder / "mlruns")
    for database in folder.glob("mlflow.db*"):
        database.unlink()
    set_params(folder, *SMALL)
    if is_killed:
        _kill(folder)
    words = _start(folder).communicate(timeout=PATIENCE_S)[0]

    record = json.loads((folder / "reports/hardening.json").read_text())
    assert "Ended: all rounds are done." in words, words
    assert {"0": 3, "1": 3, "2": 3} == {key: len(own) for key, own in record["success"].items()}
    assert ["", "1", "2"] == [own["version"] for own in record["rounds"]]
    assert 3 == len({own["target"] for own in record["rounds"]})
    # A fresh attacker's findings are in the archive of the project, to be learned from.
    pairs = next(folder.glob("models/hardened/*/pairs_2.jsonl")).read_text().splitlines()
    assert record["rounds"][2]["num_findings"] == sum('"benign"' not in line for line in pairs)
    assert [] == [path for path in (folder / "sweeps/points").iterdir() if path.is_dir()]
    again = _start(folder).communicate(timeout=PATIENCE_S)[0]
    assert record == json.loads((folder / "reports/hardening.json").read_text())
    assert words.rpartition("# Hardening")[2] == again.rpartition("# Hardening")[2]


def _start(folder):
    return subprocess.Popen(
        [sys.executable, "-m", "flows.cli", "harden", "--rounds", "2"],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _kill(folder):
    """Kills it when the first fresh attacker is being trained."""
    first = _start(folder)
    end = time.monotonic() + PATIENCE_S
    while not [*folder.glob("sweeps/points/*/models/base/manifest.json")]:
        assert time.monotonic() < end
        time.sleep(0.2)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
