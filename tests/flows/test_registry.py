import pytest
from registry_project import enter_project
from registry_project import receipt as left

from flows.registry import alias_versions, is_registered
from tasks.records.reports import write_record
from tasks.tracking.store import connect


@pytest.fixture
def project(tmp_path, monkeypatch):
    return enter_project(tmp_path, monkeypatch)


def _register(folder):
    client = connect()
    client.create_registered_model("attacker")
    client.create_model_version("attacker", source=str(folder))
    return client


def test_a_receipt_is_true_while_the_registry_has_its_version(project):
    receipt = project / "receipt.json"
    write_record(left(), receipt)

    assert not is_registered(receipt)
    client = _register(project)
    assert is_registered(receipt)
    client.delete_model_version("attacker", "1")
    assert not is_registered(receipt)


def test_without_a_receipt_nothing_is_registered(project):
    assert not is_registered(project / "none.json")


def test_alias_versions_lists_what_is_set(project):
    client = _register(project)

    assert {} == alias_versions("attacker")
    client.set_registered_model_alias("attacker", "champion", "1")
    assert {"champion": "1"} == alias_versions("attacker")
    assert {} == alias_versions("unknown")


def test_a_store_that_was_never_made_is_not_made_by_looking(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    assert {} == alias_versions("attacker")
    assert not (tmp_path / "mlflow.db").exists()
