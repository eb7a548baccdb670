"""Promises of the registration stage: everything is recorded, and nothing twice."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from registry_project import (
    RUN_KEY,
    Killed,
    enter_project,
    killed_after,
    register,
    write_checkpoint,
    write_project,
    write_reports,
)

import tasks.report.page
import tasks.stages.registration
from astra_core.errors import DataError
from astra_core.files import read_json, write_json
from tasks.pipeline.stage import stage_of
from tasks.stages.registration import register_attacker
from tasks.tracking.chronicle import lineage_of
from tasks.tracking.errors import StoreError
from tasks.tracking.figures import HEADLINE
from tasks.tracking.runs import connect, open_run
from tasks.tracking.versions import aliases_of

EXPERIMENT = "red-team-training"


@pytest.fixture
def project(tmp_path, monkeypatch):
    write_project(enter_project(tmp_path, monkeypatch))
    return tmp_path


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


def test_register_attacker_records_the_run(project):
    receipt = register()

    client = connect()
    run = client.get_run(receipt.run_id)
    assert run.data.tags["astra.run_key"] == RUN_KEY
    assert run.data.params["training.algorithm.name"] == "dpo"
    assert run.data.params["prompts.source"] == "builtin"
    assert pytest.approx(0.61) == run.data.metrics["train/loss"]
    assert pytest.approx(0.6) == run.data.metrics["final/attack_success_rate"]
    headline = {name for name in run.data.metrics if name.startswith(("final/", "baseline/"))}
    assert set(HEADLINE) == headline
    assert pytest.approx(0.2) == run.data.metrics["baseline/attack_success_rate"]
    assert pytest.approx(0.4) == run.data.metrics["final/lift"]
    assert run.info.status == "FINISHED"
    inputs = {entry.dataset.name: entry for entry in run.inputs.dataset_inputs}
    assert set(inputs) == {"prompts", "valid", "rollouts"}
    assert json.loads(inputs["valid"].dataset.profile) == {"num_rows": 2}


def test_a_training_that_was_not_evaluated_is_registered(project):
    report, steps = (project / "reports" / name for name in ("training.json", "training_steps.csv"))
    found = json.loads(report.read_text())
    report.write_text(json.dumps({**found, "first": None, "best": None, "kept": "last"}))
    steps.write_text("step,training_step,train/loss\n0,0,\n1,1,0.69\n2,2,0.61\n")
    run = connect().get_run(register().run_id)
    kept = {path.name for path in Path(run.info.artifact_uri).rglob("*.png")}

    assert pytest.approx(0.61) == run.data.metrics["train/loss"]
    assert pytest.approx(0.6) == run.data.metrics["final/attack_success_rate"]
    assert not [name for name in run.data.metrics if name.startswith("eval/")]
    assert {"scores.png"} == kept


def test_a_training_that_moved_too_far_is_tagged(project):
    report = project / "reports/training.json"
    found = json.loads(report.read_text())
    report.write_text(json.dumps({**found, "kl_warning": "experience 2 moved the attacker"}))

    receipt = register()

    client = connect()
    version = client.get_model_version(receipt.model_name, receipt.version)
    for tags in (client.get_run(receipt.run_id).data.tags, version.tags):
        assert "experience 2 moved the attacker" == tags["astra.kl_warning"]


def test_register_attacker_keeps_reports_and_pictures(project):
    receipt = register()

    root = Path(connect().get_run(receipt.run_id).info.artifact_uri)
    kept = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    assert kept == {
        "training/training.json",
        "training/training_steps.csv",
        "data/known_prompts.txt",
        "data/validation.json",
        "data/rollouts.json",
        "figures.csv",
        "lineage.json",
        "report.html",
        *(
            f"evaluation/{'e7' * 8}/{name}"
            for name in (
                "evaluation.json",
                "evaluation_prompts.parquet",
                "examples.md",
                "params.json",
                "learning_curve.png",
                "reward.png",
                "scores.png",
            )
        ),
    }


def test_register_attacker_makes_a_restricted_candidate(project):
    receipt = register()

    version = connect().get_model_version_by_alias("attacker", "candidate")
    assert receipt.version == str(version.version) == "1"
    assert version.tags["astra.checkpoint_digest"] == "00" * 32
    assert "astra.target_digest" not in version.tags
    lineage = lineage_of(connect(), "attacker", "1")
    assert ("7a" * 32, RUN_KEY) == (lineage.target_digest, lineage.run_key)
    assert version.tags["attack_success_rate"] == "0.6000"
    assert version.tags["intended_use"] == "restricted"
    assert "Not to be used for" in version.description
    assert version.description.startswith("Attack success 0.600 [0.500, 0.700], untrained 0.200")
    assert version.run_id == receipt.run_id


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
    assert receipt.summary().startswith("attacker version 1 is candidate (checkpoint 000000000000")


def test_registering_twice_changes_nothing(project):
    first = register()
    before = state(connect())
    second = register()

    assert first == second
    assert before == state(connect())


def test_register_attacker_goes_on_with_the_run_of_the_training(project):
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


def test_another_checkpoint_makes_a_version_with_weights_of_its_own(project):
    register()
    write_checkpoint(project / "models" / "attacker", seed=1)
    second = register()

    assert second.version == "2"
    assert len(state(connect())["models"]) == 2


def test_an_earlier_checkpoint_is_candidate_again_under_its_old_version(project):
    """Parameters that are taken back lead to the version that they led to before."""
    register()
    write_checkpoint(project / "models" / "attacker", seed=1)
    register()
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


@pytest.mark.parametrize("write", ["create_logged_model", "create_model_version"])
def test_registration_completes_what_a_kill_left(project, monkeypatch, write):
    assert registration_dies(killed_after(1, of=[write]), monkeypatch)

    register()

    assert_registered_once(connect())


@pytest.mark.slow
def test_registration_completes_what_a_kill_left_at_any_write(
    project, monkeypatch, tmp_path_factory
):
    monkeypatch.setattr(tasks.stages.registration, "draw_plots", lambda *_, **__: [])
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


def test_lineage_carries_the_digests_of_dvc(project):
    Path("dvc.lock").write_text(
        "schema: '2.0'\nstages:\n  prompts:\n    outs:\n    - path: data/prompts\n"
        "      md5: 4f1c.dir\n"
    )
    receipt = register()

    inputs = connect().get_run(receipt.run_id).inputs.dataset_inputs
    digests = {i.dataset.name: {t.key: t.value for t in i.tags}.get("dvc.md5") for i in inputs}
    assert digests == {"prompts": "4f1c.dir", "valid": None, "rollouts": None}


@pytest.mark.parametrize(
    "path", ["reports/training.json", "reports/evaluation.json", "models/attacker/astra.json"]
)
def test_a_missing_report_is_named(project, path):
    Path(path).unlink()

    with pytest.raises(DataError, match=f"{path} must be a JSON report"):
        register()


def test_a_store_that_is_away_is_one_line(project, monkeypatch):
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


def test_results_by_category_are_kept_as_a_table_and_a_few_figures(tmp_path, monkeypatch):
    enter_project(tmp_path, monkeypatch)
    write_project(tmp_path)
    path = tmp_path / "reports/evaluation.json"
    record = read_json(path)
    rates = dict.fromkeys(("attacker", "baseline", "lift"), record["lift"])
    record["categories"] = {"fraud": {"num_prompts": 7, **rates}}
    write_json(record, path)
    receipt = register()
    client = connect()
    run = client.get_run(receipt.run_id)
    (table,) = Path(run.info.artifact_uri).rglob("categories.csv")
    version = client.get_model_version("attacker", receipt.version)

    assert "fraud" == pd.read_csv(table)["category"].item()
    figures = pd.read_csv(Path(run.info.artifact_uri) / "figures.csv", index_col="figure")
    assert 1.0 == figures.loc["num_categories", "trained"]
    assert 0.5 == pytest.approx(figures.loc["attack_success_rate_low", "trained"])
    assert 0.1 == pytest.approx(figures.loc["attack_success_rate_low", "untrained"])
    assert "| fraud | 7 | " in version.description
