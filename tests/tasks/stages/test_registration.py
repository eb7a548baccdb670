"""Promises of the registration stage: everything is recorded, and nothing twice."""

import json
import shutil
from pathlib import Path

import pytest
from each_row import each_row
from registry_project import (
    RUN_KEY,
    Killed,
    enter_project,
    forget_machine,
    killed_after,
    register,
    without_pictures,
    write_checkpoint,
    write_project,
    write_reports,
)

import tasks.report.page
import tasks.stages.registration
import tasks.tracking.registry.registration
from astra_core.errors import DataError
from astra_core.models.folders import attacker_digest
from tasks.pipeline.stage import stage_of
from tasks.stages.registration import register_attacker
from tasks.tracking.errors import StoreError
from tasks.tracking.registry.versions import aliases_of
from tasks.tracking.runs import open_run
from tasks.tracking.store import connect

pytestmark = pytest.mark.real

EXPERIMENT = "red-team-training"


@pytest.fixture
def project(tmp_path, monkeypatch):
    write_project(enter_project(tmp_path, monkeypatch))
    return tmp_path


@pytest.fixture
def project_in_memory(in_memory, monkeypatch):
    without_pictures(monkeypatch)
    write_project(in_memory)
    return in_memory


def state(client):
    """How much of each kind there is; a repetition must not add to it."""
    experiment = client.get_experiment_by_name(EXPERIMENT).experiment_id
    (run,) = client.search_runs([experiment])
    histories = {
        name: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
    }
    return {
        "params": run.data.params,
        "metrics": histories,
        "inputs": sorted(entry.dataset.name for entry in run.inputs.dataset_inputs),
        "outputs": len(run.outputs.model_outputs),
        "models": [str(m.status) for m in client.search_logged_models([experiment])],
        "model_folders": len(list(Path("mlruns").rglob("MLmodel"))),
        "versions": [str(v.version) for v in client.search_model_versions("name = 'attacker'")],
        "aliases": aliases_of(client, "attacker"),
        "status": run.info.status,
    }


def test_register_attacker_leaves_a_receipt(project):
    receipt = register()

    written = json.loads(Path("reports/registration.json").read_text())
    assert set(written) == {
        "model_name",
        "version",
        "run_id",
        "experiment_id",
        "tracking_uri",
        "checkpoint_digest",
        "evaluation_key",
    }
    assert written["run_id"] == receipt.run_id
    assert "sqlite:///mlflow.db" == written["tracking_uri"]
    digest = attacker_digest(Path("models/attacker"))[:12]
    assert receipt.summary().startswith(f"attacker version 1 is candidate (checkpoint {digest}")


def test_registering_twice_changes_nothing(project_in_memory):
    first = register()
    before = state(connect())
    second = register()

    assert first == second
    assert before == state(connect())


def test_an_attacker_that_no_update_changed_is_registered(project_in_memory):
    Path("reports/training_steps.csv").write_text("step,eval/attack_success_rate\n0,0.5\n")

    assert register().summary().startswith("attacker version 1 is candidate")
    assert [(0, 0.5)] == state(connect())["metrics"]["eval/attack_success_rate"]


def test_register_attacker_continues_with_the_run_of_the_training(project_in_memory):
    log = open_run(RUN_KEY, experiment=EXPERIMENT, params={"seed": 0})
    log.log_step({"train/loss": 0.69}, 1)
    log.finish("FAILED")

    receipt = register()

    assert log.run_id == receipt.run_id
    assert state(connect())["metrics"]["train/loss"] == [(1, 0.69), (2, 0.61)]
    assert state(connect())["status"] == "FINISHED"


def test_another_evaluation_makes_a_version_but_no_second_copy_of_the_weights(project):
    register()
    write_reports(project, rate=0.5, key="ab" * 32)
    second = register()

    client = connect()
    assert second.version == "2"
    assert len(state(client)["models"]) == 1
    assert state(client)["aliases"] == {"candidate": "2"}
    assert state(client)["metrics"]["final/attack_success_rate"][-1] == (2, 0.5)


def test_another_checkpoint_makes_a_version_and_an_earlier_one_is_candidate_again(project):
    """Parameters that are taken back lead to the version that they led to before."""
    register()
    write_checkpoint(project / "models" / "attacker", seed=1)
    second = register()

    assert second.version == "2"
    assert len(state(connect())["models"]) == 2

    write_checkpoint(project / "models" / "attacker", seed=0)
    again = register()

    assert again.version == "1"
    assert state(connect())["aliases"] == {"candidate": "1"}


def assert_registered_once(client):
    whole = state(client)
    assert whole["models"] == ["READY"]
    assert whole["model_folders"] == 1
    assert whole["versions"] == ["1"]
    assert whole["outputs"] == 1
    assert whole["aliases"] == {"candidate": "1"}
    assert whole["status"] == "FINISHED"
    assert whole["inputs"] == ["prompts", "rollouts", "valid"]
    assert all(len(points) == len(set(points)) for points in whole["metrics"].values())


def registration_dies(client, monkeypatch):
    """True if the registration died with its client."""
    with monkeypatch.context() as patch:
        patch.setattr(tasks.stages.registration, "connect", lambda: client)
        try:
            register()
        except Killed:
            return True
    return False


@pytest.mark.parametrize(
    "write", [pytest.param("create_logged_model", marks=pytest.mark.wide), "create_model_version"]
)
def test_registration_completes_what_a_kill_left(project, monkeypatch, write):
    assert registration_dies(killed_after(1, of=[write]), monkeypatch)

    register()

    assert_registered_once(connect())


@pytest.mark.wide
def test_registration_completes_what_a_kill_left_at_any_write(
    project, monkeypatch, tmp_path_factory
):
    monkeypatch.setattr(tasks.report.page, "pictures", lambda _: [])
    num_writes = 0
    has_died = True
    while has_died:
        num_writes += 1
        # A folder each: the store keeps connections to a database of the same name.
        folder = shutil.copytree(project, tmp_path_factory.mktemp("round") / "project")
        enter_project(folder, monkeypatch)
        has_died = registration_dies(killed_after(num_writes), monkeypatch)
        register()
        assert_registered_once(connect())

    # Experiment, run, parameters, steps, inputs, artifacts, model, version, alias, end of the run.
    assert num_writes > 15


def test_a_model_whose_files_were_deleted_is_uploaded_again(project):
    register()
    shutil.rmtree(project / "mlruns")
    register()

    assert state(connect())["model_folders"] == 1
    assert len(state(connect())["models"]) == 1


@each_row(
    "path", ["reports/training.json", "reports/evaluation.json", "models/attacker/astra.json"]
)
def test_a_missing_report_is_named(tmp_path, monkeypatch, path):
    forget_machine(tmp_path, monkeypatch)
    write_project(tmp_path)
    Path(path).unlink()

    with pytest.raises(DataError, match=f"{path} must be a JSON report"):
        register()


def test_a_store_that_is_away_is_one_line(tmp_path, monkeypatch):
    forget_machine(tmp_path, monkeypatch)
    write_project(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

    with pytest.raises(StoreError, match=r"127\.0\.0\.1:9 must answer, got ConnectionRefusedError"):
        register()
    assert not Path("reports/registration.json").exists()


def test_registration_is_a_stage_with_a_receipt():
    stage = stage_of(register_attacker)

    assert stage.name == "registration"
    assert stage.receipts == (Path("reports/registration.json"),)
    assert "promotion" not in stage.params
