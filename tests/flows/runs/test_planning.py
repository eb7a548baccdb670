import json
import shutil
from pathlib import Path

import pytest

from flows.cli import run_command
from flows.runs.planning import plan_run
from flows.runs.requests import RunRequest
from flows.settings import as_if
from tasks.params.schema import read_params
from tasks.pipeline.durations import note_duration
from tasks.pipeline.names import STAGE_NAMES

ROOT = Path(__file__).parents[3]
COPIED = ("params.yaml", "dvc.yaml", "astra_core", "astra_parts", "plugins", "tasks")


@pytest.fixture
def project(restored, dvc_project):
    """The project before its first run, beside DVC."""
    for name in COPIED:
        (dvc_project / name).symlink_to(ROOT / name)
    (dvc_project / "params.yaml").unlink()
    shutil.copy(ROOT / "params.yaml", dvc_project)
    return dvc_project


def plan_of(*assignments, **limits):
    with as_if(assignments):
        return plan_run(RunRequest(**limits), read_params())


LOCK = """\
schema: '2.0'
stages:
  prompts:
    cmd: sh tasks/stage.sh prompts
    params:
      params.yaml:
        data_seed: {seed}
        prompts: {{}}
"""


@pytest.mark.real
def test_a_stage_would_run_for_the_values_that_its_last_run_did_not_have(project):
    Path("dvc.lock").write_text(LOCK.format(seed=7), "utf-8")
    Path("data/prompts").mkdir(parents=True)
    reasons = [plan_of(*values).steps[0].reasons for values in ((), ("data_seed=7",))]

    assert ["params.yaml data_seed, prompts", "params.yaml prompts"] == [
        next(why for why in own if why.startswith("params.yaml")) for own in reasons
    ]


@pytest.mark.real
def test_before_the_first_run_everything_would_run_and_no_time_is_known(project):
    plan = plan_of()

    assert [*STAGE_NAMES, "promotion"] == [step.name for step in plan.steps]
    assert {"would run"} == {step.state for step in plan.steps[:-1]}
    assert plan.seconds is None
    assert "time unknown" in list(plan.lines())[-2]
    assert plan.replies > 0


@pytest.mark.real
def test_times_follow_the_work_and_limits_choose(project, capsys):
    for name in STAGE_NAMES:
        note_duration(name, 10.0, amount=_replies(plan_of(), name))
    plan = plan_of(start="rollouts", end="training")
    double = plan_of("rollouts.num_prompts=128", start="rollouts", end="training")

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
