import shutil
from pathlib import Path

import pytest

from flows.cli import run_command
from flows.commands.running import steps_that_begin_with
from flows.runs.last_request import note_request
from flows.runs.requests import RunRequest
from tasks.params.schema import read_params

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(restored, tmp_path, monkeypatch):
    """A folder with params.yaml whose Prefect server is away: no run begins there."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    return tmp_path


def test_set_is_for_the_run_and_save_writes_it(project, capfd):
    before = Path("params.yaml").read_bytes()
    some = ("run", "--only", "training", "--set", "seed=5")
    assert 2 == run_command(some)
    told = capfd.readouterr()

    assert "this run       seed: 0 -> 5" in told.out
    assert "error: a Prefect server must answer" in told.err
    assert before == Path("params.yaml").read_bytes()
    assert 2 == run_command([*some, "--save"])
    assert "params.yaml    seed: 0 -> 5" in capfd.readouterr().out
    assert 5 == read_params().seed


def test_a_run_that_did_not_end_is_resumed_with_what_it_had(project, capfd):
    note_request(RunRequest((("seed", 5),), only="training"))

    assert 2 == run_command(["resume"])
    assert "this run       seed: 5" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--only", "trainin"), "--only must name one of"),
        (("--from", "training", "--to", "models"), "--from must not come after --to"),
    ],
)
def test_a_wrong_step_is_told_before_anything_runs(project, capfd, arguments, message):
    assert 2 == run_command(["run", *arguments])
    told = capfd.readouterr().err

    assert f"error: {message}" in told
    assert 1 == len(told.splitlines())


def test_a_shell_completes_steps():
    assert ["promotion", "prompts"] == sorted(steps_that_begin_with("pro"))
    assert [] == steps_that_begin_with("x")
