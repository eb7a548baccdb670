"""What a registration leaves in MLflow."""

import json
from pathlib import Path

import pandas as pd
import pytest
from memory_store import emptied, enter_memory_project
from registry_project import RUN_KEY, register, without_pictures, write_project

from astra_core.files import read_json, write_json
from astra_core.models.folders import attacker_digest
from tasks.tracking.figures import HEADLINE
from tasks.tracking.lineage.chronicle import lineage_of
from tasks.tracking.store import connect

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def receipt(memory_folder):
    """That of a registration whose training moved too far, of data that DVC knows."""
    with pytest.MonkeyPatch.context() as patch:
        project = enter_memory_project(emptied(memory_folder), patch)
        write_project(project)
        report = project / "reports/training.json"
        write_json(read_json(report) | {"kl_warning": "experience 2 moved the attacker"}, report)
        Path("dvc.lock").write_text(
            "schema: '2.0'\nstages:\n  prompts:\n    outs:\n    - path: data/prompts\n"
            "      md5: 4f1c.dir\n"
        )
        yield register()


def test_register_attacker_records_the_run(receipt):
    client = connect()
    run = client.get_run(receipt.run_id)
    assert run.data.tags["astra.run_key"] == RUN_KEY
    assert run.data.params["training.algorithm.name"] == "dpo"
    assert run.data.params["prompts.source"] == "builtin"
    assert pytest.approx(0.61) == run.data.metrics["train/loss"]
    assert pytest.approx(0.6) == run.data.metrics["final/attack_success_rate"]
    headline = {name for name in run.data.metrics if name.startswith(("final/", "baseline/"))}
    # This evaluation has counted none of them.
    assert set(HEADLINE) - {"final/unique_attacks", "final/over_refusal_rate"} == headline
    assert pytest.approx(0.2) == run.data.metrics["baseline/attack_success_rate"]
    assert pytest.approx(0.4) == run.data.metrics["final/lift"]
    assert run.info.status == "FINISHED"
    inputs = {entry.dataset.name: entry for entry in run.inputs.dataset_inputs}
    assert set(inputs) == {"prompts", "valid", "rollouts"}
    assert json.loads(inputs["valid"].dataset.profile) == {"num_rows": 2}


def test_a_training_that_moved_too_far_is_tagged(receipt):
    client = connect()
    version = client.get_model_version(receipt.model_name, receipt.version)
    for tags in (client.get_run(receipt.run_id).data.tags, version.tags):
        assert "experience 2 moved the attacker" == tags["astra.kl_warning"]


def test_register_attacker_keeps_reports_and_pictures(receipt):
    root = Path(connect().get_run(receipt.run_id).info.artifact_uri)
    kept = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    assert kept == {
        "training/training.json",
        "training/training_steps.csv",
        "data/known_prompts.txt",
        "data/prompts.html",
        "data/rollouts.html",
        "data/validation.json",
        "data/rollouts.json",
        "figures.csv",
        "lineage.json",
        "report.html",
        *(
            f"evaluation/{'e7' * 8}/{name}"
            for name in (
                "dvc.lock",
                "evaluation.json",
                "evaluation_prompts.parquet",
                "examples.md",
                "params.json",
            )
        ),
    }


def test_register_attacker_makes_a_restricted_candidate(receipt):
    version = connect().get_model_version_by_alias("attacker", "candidate")
    assert receipt.version == str(version.version) == "1"
    assert version.tags["astra.checkpoint_digest"] == attacker_digest(Path("models/attacker"))
    assert "astra.target_digest" not in version.tags
    lineage = lineage_of(connect(), "attacker", "1")
    assert ("7a" * 32, RUN_KEY) == (lineage.target_digest, lineage.run_key)
    assert version.tags["attack_success_rate"] == "0.6000"
    # In the order in which MLflow's pages list them: a person reads the first.
    assert next(iter(version.tags)) == "attack_success_rate"
    assert [*version.tags][-1] == "astra.checkpoint_digest"
    assert version.tags["intended_use"] == "restricted"
    assert "Not to be used for" in version.description
    assert version.description.startswith("Attack success 60.0% [50.0%, 70.0%], untrained 20.0%")
    assert version.run_id == receipt.run_id


def test_lineage_carries_the_digests_of_dvc(receipt):
    inputs = connect().get_run(receipt.run_id).inputs.dataset_inputs
    digests = {i.dataset.name: {t.key: t.value for t in i.tags}.get("dvc.md5") for i in inputs}
    assert digests == {"prompts": "4f1c.dir", "valid": None, "rollouts": None}


@pytest.fixture
def project(in_memory, monkeypatch):
    without_pictures(monkeypatch)
    write_project(in_memory)
    return in_memory


def test_a_training_that_was_not_evaluated_is_registered(in_memory):
    write_project(in_memory)
    report, steps = (
        in_memory / "reports" / name for name in ("training.json", "training_steps.csv")
    )
    found = json.loads(report.read_text())
    report.write_text(json.dumps({**found, "first": None, "best": None, "kept": "last"}))
    steps.write_text("step,training_step,train/loss\n0,0,\n1,1,0.69\n2,2,0.61\n")
    run = connect().get_run(register().run_id)

    assert pytest.approx(0.61) == run.data.metrics["train/loss"]
    assert pytest.approx(0.6) == run.data.metrics["final/attack_success_rate"]
    assert not [name for name in run.data.metrics if name.startswith("eval/")]


def test_results_by_category_are_kept_as_a_table_and_a_few_figures(project):
    path = project / "reports/evaluation.json"
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
