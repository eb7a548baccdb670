"""A run without Prefect: limits and retries on a toy, the whole on a project that has run."""

from pathlib import Path

import pytest
from project import run_in
from shared import finished_project

from flows.runs.local_engine import confirmed, run_stage
from flows.runs.requests import RunRequest
from tasks.params.schema import FlowConfiguration

CRASH_ONCE = """\
import os, signal
from pathlib import Path
if not Path("crashed").exists():
    Path("crashed").touch()
    os.kill(os.getpid(), signal.SIGKILL)
Path("out.txt").write_text("done")
"""


@pytest.mark.real
def test_a_crash_is_tried_again_and_a_limit_is_not(toy, capfd):
    toy(CRASH_ONCE)
    outcome = run_stage("toy", FlowConfiguration(retry_delay_s=0.0))

    assert ("Completed", 2, None) == (outcome.state, outcome.attempts, outcome.error)
    assert "toy          try 2 of 3" in capfd.readouterr().out
    Path("out.txt").unlink()
    Path("toy.py").write_text("import time; time.sleep(60)", "utf-8")
    late = run_stage("toy", FlowConfiguration(timeouts_s={"toy": 2.0}))
    assert ("TimedOut", 1) == (late.state, late.attempts)
    assert "stage toy must end within 2 s" in late.message


def test_no_retry_is_made_where_params_yaml_wants_none(toy):
    toy("import os; os.kill(os.getpid(), 9)")
    outcome = run_stage("toy", FlowConfiguration(retries=0))

    assert ("Failed", 1) == (outcome.state, outcome.attempts)


def test_a_request_for_less_or_more_than_a_look_is_no_confirmation():
    assert confirmed(RunRequest(force=True)) is None
    assert confirmed(RunRequest(end="training")) is None


@pytest.mark.real
@pytest.mark.timeout(1800)
def test_values_for_one_run_leave_params_yaml_alone_and_the_next_run_goes_back(
    tmp_path, tmp_path_factory
):
    folder = finished_project(tmp_path_factory).copy_to(tmp_path / "project")
    before = {name: (folder / name).read_bytes() for name in ("params.yaml", "dvc.yaml")}
    prompts = (folder / "data/prompts/train.parquet").read_bytes()
    local = ("run", "--engine", "local")
    some = (*local, "--set", "data_seed=7", "--to", "prompts")
    once = run_in(folder, "-m", "flows.cli", *some)
    again = run_in(folder, "-m", "flows.cli", *some).stdout
    changed = (folder / "data/prompts/train.parquet").read_bytes()
    status = run_in(folder, "-m", "flows.cli", "status").stdout
    back = run_in(folder, "-m", "flows.cli", *local).stdout
    quick = run_in(folder, "-c", NO_PREFECT, "run")

    assert before == {name: (folder / name).read_bytes() for name in before}
    assert "this run       data_seed: " in once.stdout
    assert "params.yaml  unchanged: data_seed held for this run" in once.stdout
    assert "promotion" not in once.stdout
    assert 1 == again.count("up to date")
    assert "prompts      would run: params.yaml" in status
    assert prompts != changed
    assert "prompts      restored from DVC's cache" in back
    assert prompts == (folder / "data/prompts/train.parquet").read_bytes()
    assert "up to date" in run_in(folder, "-m", "dvc", "status").stdout
    assert 7 == quick.stdout.count("up to date")
    assert "promotion      attacker version 1" in quick.stdout


# A run with nothing to do that would fail if it imported Prefect or torch.
NO_PREFECT = (
    "import sys; sys.modules['prefect'] = sys.modules['torch'] = None; "
    "from flows.cli import run_command; sys.exit(run_command(sys.argv[1:]))"
)
