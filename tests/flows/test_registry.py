from dataclasses import replace

import pytest
from registry_project import enter_project, receipt as left

from astra_core.files import write_json
from flows.registry import ANOTHER, alias_versions, is_registered, why_unregistered
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


@pytest.mark.real
def test_a_receipt_is_true_while_the_registry_has_its_version(project):
    receipt = project / "receipt.json"
    write_record(left(), receipt)

    assert not is_registered(receipt)
    client = _register(project)
    assert is_registered(receipt)
    client.delete_model_version("attacker", "1")
    assert not is_registered(receipt)


@pytest.mark.real
def test_files_of_another_version_are_not_registered(project):
    """As after a checkout of an earlier dvc.lock."""
    receipt, note = project / "reports/receipt.json", project / "models/attacker/astra.json"
    write_record(replace(left(), evaluation_key="e1"), receipt)
    _register(project)
    found = []
    for digest, key in (("other", "e1"), (left().checkpoint_digest, "e2"), (None, None)):
        write_json({"digest": digest or left().checkpoint_digest}, note)
        write_json({"evaluation_key": key or "e1"}, receipt.parent / "evaluation.json")
        found.append(why_unregistered(receipt))

    assert [ANOTHER, ANOTHER, ""] == found


@pytest.mark.real
def test_without_a_receipt_nothing_is_registered(project):
    assert not is_registered(project / "none.json")


@pytest.mark.real
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
