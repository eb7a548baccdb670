import shutil
from pathlib import Path

import pytest

from flows.cli import run_command
from flows.commands.running import BEFORE, steps_that_begin_with
from tasks.params.schema import read_params

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(restored, tmp_path, monkeypatch):
    """A folder with params.yaml whose Prefect server is away: no run begins there."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    return tmp_path


def test_set_writes_params_yaml_and_says_how_to_undo_it(project, capfd):
    before = Path("params.yaml").read_bytes()
    some = ("run", "--only", "training", "--set", "seed=5")
    for lines in (["params.yaml    seed: 0 -> 5", f"undo           cp {BEFORE} params.yaml"], []):
        assert 2 == run_command(some)
        told = capfd.readouterr()

        assert lines == told.out.splitlines()[2:]
        assert "error: a Prefect server must answer" in told.err
        assert 5 == read_params().seed
        # With nothing to change the second time, what came before is still there.
        assert before == BEFORE.read_bytes()


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
