import pytest
from each_row import each_row
from memory_store import emptied, enter_memory_project

from tasks.tracking.registry.registered import aliases_in, has_version, version_behind
from tasks.tracking.store import connect

pytestmark = pytest.mark.real

NAME = "attacker"


@pytest.fixture(scope="module")
def client(memory_folder):
    """Of a store with one version, the champion, and a model without any."""
    with pytest.MonkeyPatch.context() as patch:
        folder = enter_memory_project(emptied(memory_folder), patch)
        client = connect()
        client.create_registered_model(NAME)
        client.create_registered_model("empty")
        client.create_model_version(NAME, str(folder))
        client.set_registered_model_alias(NAME, "champion", "1")
        yield client


def test_an_alias_leads_to_its_version(client):
    assert "1" == str(version_behind(client, NAME, "champion").version)
    assert {"champion": "1"} == aliases_in(client, NAME)
    assert has_version(client, NAME, "1")


@each_row("name", [NAME, "empty", "nobody"])
def test_what_is_not_there_is_nothing(client, name):
    assert version_behind(client, name, "candidate") is None
    assert not has_version(client, name, "2")
    assert (name == NAME) == bool(aliases_in(client, name))


def test_a_store_that_does_not_answer_is_no_empty_one(monkeypatch):
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    nowhere = MlflowClient("http://127.0.0.1:9")
    for ask in (
        lambda: version_behind(nowhere, NAME, "champion"),
        lambda: has_version(nowhere, NAME, "1"),
        lambda: aliases_in(nowhere, NAME),
    ):
        with pytest.raises(MlflowException, match=r"127\.0\.0\.1"):
            ask()
