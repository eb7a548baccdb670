import json
import shutil
from pathlib import Path

import pytest

from flows.cli import run_command
from flows.runs.planning import planned
from flows.runs.requests import RunRequest
from tasks.pipeline.durations import note_duration
from tasks.pipeline.names import STAGE_NAMES

ROOT = Path(__file__).parents[3]
COPIED = ("params.yaml", "dvc.yaml", "astra_core", "plugins", "tasks")


@pytest.fixture
def project(restored, dvc_project):
    """The project before its first run, beside DVC."""
    for name in COPIED:
        (dvc_project / name).symlink_to(ROOT / name)
    (dvc_project / "params.yaml").unlink()
    shutil.copy(ROOT / "params.yaml", dvc_project)
    return dvc_project


def test_before_the_first_run_everything_would_run_and_no_time_is_known(project):
    plan = planned(RunRequest())

    assert [*STAGE_NAMES, "promotion"] == [step.name for step in plan.steps]
    assert {"would run"} == {step.state for step in plan.steps[:-1]}
    assert plan.seconds is None
    assert "time unknown" in list(plan.lines())[-2]
    assert plan.replies > 0


@pytest.mark.real
def test_times_follow_the_work_and_limits_choose(project, capsys):
    for name in STAGE_NAMES:
        note_duration(name, 10.0, amount=_replies(planned(RunRequest()), name))
    plan = planned(RunRequest(start="rollouts", end="training"))
    double = planned(RunRequest((("rollouts.num_prompts", 128),), start="rollouts", end="training"))

    assert ["rollouts", "training"] == [step.name for step in plan.steps]
    assert 20.0 == plan.seconds
    assert 20.0 == double.steps[0].seconds
    assert 0 == run_command(["run", "--dry-run", "--only", "training", "--json"])
    record = json.loads(capsys.readouterr().out)
    assert 10.0 == record["seconds"]
    assert "training" == record["steps"][0]["name"]
    assert not Path("data").exists()


def test_json_belongs_to_a_dry_run(project, capsys):
    assert 2 == run_command(["run", "--json"])
    assert "error: --json must come with --dry-run" in capsys.readouterr().err


@pytest.mark.real
def test_a_plan_with_a_warm_start_says_what_it_begins_from(project, capsys, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{project}/mlflow.db")
    only = ["--only", "training"]
    assert 0 == run_command(["run", "--dry-run", "--warm-start", "champion", *only])
    assert capsys.readouterr().out.startswith("warm start   there is no champion yet: begins from")
    assert 0 == run_command(["run", "--dry-run", "--warm-start", "champion", *only, "--json"])
    assert json.loads(capsys.readouterr().out)["steps"]
    assert 2 == run_command(["run", "--dry-run", "--warm-start", "9", *only])
    assert "error: warm start must name a version of 'attacker'" in capsys.readouterr().err


def _replies(plan, name):
    return next(step.replies for step in plan.steps if step.name == name) or 1.0
