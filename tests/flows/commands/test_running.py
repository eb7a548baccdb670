import shutil
from pathlib import Path

import pytest

from flows.cli import run_command
from flows.commands.running import steps_that_begin_with
from tasks.params.schema import read_params

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(restored, tmp_path, monkeypatch):
    """A folder with params.yaml that is no DVC project: each run ends before its first stage."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_set_is_for_the_run_and_save_writes_it(project, capfd):
    before = Path("params.yaml").read_bytes()
    some = ("run", "--engine", "local", "--only", "training", "--set", "seed=5")
    assert 2 == run_command(some)
    told = capfd.readouterr()

    assert "this run       seed: 0 -> 5" in told.out
    assert "error: DVC must know stage 'training'" in told.err
    assert before == Path("params.yaml").read_bytes()
    # The run did not end, so it can be resumed with what it had.
    assert 2 == run_command(["resume", "--engine", "local"])
    assert "this run       seed: 5" in capfd.readouterr().out
    assert 2 == run_command([*some, "--save"])
    assert "params.yaml    seed: 0 -> 5" in capfd.readouterr().out
    assert 5 == read_params().seed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--only", "trainin"), "--only must name one of"),
        (("--from", "training", "--to", "models"), "--from must not come after --to"),
        (
            ("--engine", "airflow"),
            "--engine: value error, 'airflow' is not one of 'prefect', 'local'",
        ),
    ],
)
def test_a_wrong_step_or_engine_is_told_before_anything_runs(project, capfd, arguments, message):
    assert 2 == run_command(["run", *arguments])
    told = capfd.readouterr().err

    assert f"error: {message}" in told
    assert 1 == len(told.splitlines())


def test_a_shell_completes_steps():
    assert ["promotion", "prompts"] == sorted(steps_that_begin_with("pro"))
    assert [] == steps_that_begin_with("x")
