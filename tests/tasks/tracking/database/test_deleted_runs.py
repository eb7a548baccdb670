from pathlib import Path

import pytest
from registry_project import enter_project, register, write_project

from flows.registry import files_are_there
from tasks.tracking.database.deleted_runs import DeletedRuns, deleted_runs, digests_of_versions
from tasks.tracking.store import connect

DIGEST = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project with a registered version whose data DVC knows."""
    with pytest.MonkeyPatch.context() as patch:
        folder = enter_project(tmp_path_factory.mktemp("project"), patch)
        write_project(folder)
        (folder / "dvc.lock").write_text(
            f"stages:\n  prompts:\n    outs:\n    - path: data/prompts\n      md5: {DIGEST}.dir\n"
        )
        register()
        yield folder


@pytest.mark.real
def test_a_deleted_run_goes_with_its_files(project):
    client = connect()
    run = client.create_run("1")
    client.log_text(run.info.run_id, "x" * 5000, "notes.txt")
    model = client.create_logged_model("1", name="tried")
    assert DeletedRuns() == deleted_runs(min_days=0.0)
    client.delete_run(run.info.run_id)
    client.delete_logged_model(model.model_id)
    found = deleted_runs(min_days=0.0)

    assert ((run.info.run_id,), (model.model_id,)) == (found.runs, found.models)
    assert found.num_bytes == 5000
    assert DeletedRuns() == deleted_runs(min_days=1.0)
    found.remove()
    assert DeletedRuns() == deleted_runs(min_days=0.0)
    assert not Path(run.info.artifact_uri).exists()


@pytest.mark.real
def test_what_a_version_needs_stays_whoever_deleted_it(project):
    client = connect()
    version = client.get_model_version("attacker", "1")
    client.delete_run(version.run_id)
    (model,) = client.search_logged_models(["1"])
    client.delete_logged_model(model.model_id)
    found = deleted_runs(min_days=0.0)
    found.remove()

    assert ((), (), 2) == (found.runs, found.models, found.num_kept)
    assert "2 deleted stay for a version" in found.line()
    assert files_are_there("attacker", "1")
    client.restore_run(version.run_id)


@pytest.mark.real
def test_the_data_of_versions_is_known_by_dvcs_digests(project):
    assert frozenset({f"{DIGEST}.dir"}) == digests_of_versions()


def test_of_a_server_nothing_is_looked_at(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")

    assert "operator" in deleted_runs(min_days=0.0).line()


def test_without_a_store_there_is_nothing(tmp_path, monkeypatch):
    enter_project(tmp_path, monkeypatch, is_empty=False)

    assert DeletedRuns() == deleted_runs(min_days=0.0)
    assert frozenset() == digests_of_versions()
    assert [] == list(tmp_path.iterdir())
