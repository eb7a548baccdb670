"""Packages, versions and aliases in a real store; who becomes champion is in ``test_promotion``."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from each_row import each_row
from memory_store import emptied, enter_memory_project
from registry_project import Killed, killed_after, receipt, write_checkpoint

from astra_core.config import SystemConfiguration
from tasks.records.receipt import RECEIPT
from tasks.records.reports import write_record
from tasks.tracking.errors import TrackingError
from tasks.tracking.registry.evidence import read_package
from tasks.tracking.registry.versions import (
    CANDIDATE,
    CHAMPION,
    CHECKPOINT_DIGEST_TAG,
    MODEL_KEY_TAG,
    REGISTRATION_KEY_TAG,
    aliases_of,
    checkpoint_folder,
    ensure_version,
    find_version,
    log_package,
    set_alias,
    version_folder,
)
from tasks.tracking.store import connect, experiment_id

pytestmark = pytest.mark.real

NAME = "attacker"


@pytest.fixture(scope="module")
def client(memory_folder):
    """Of a store in whose folder the tests work."""
    with pytest.MonkeyPatch.context() as patch:
        enter_memory_project(emptied(memory_folder), patch)
        write_checkpoint(Path("checkpoint"))
        yield connect()


@pytest.fixture(scope="module")
def run(client):
    return client.create_run(experiment_id(client, "experiment"))


@pytest.fixture(scope="module")
def package(client):
    return read_package(Path("checkpoint"), SystemConfiguration())


@pytest.fixture(scope="module")
def model(client, run, package):
    return log_package(client, run, package, name=NAME)


@pytest.fixture(scope="module")
def version(client, run, model):
    return made(client, run, model, "the first")


def made(client, run, model, key):
    tags = {
        REGISTRATION_KEY_TAG: key,
        CHECKPOINT_DIGEST_TAG: model.tags[CHECKPOINT_DIGEST_TAG],
        "note": "ours",
    }
    return ensure_version(
        client, NAME, model, run_id=run.info.run_id, tags=tags, description=f"card of {key}"
    )


def versions(client):
    return [str(found.version) for found in client.search_model_versions(f"name = '{NAME}'")]


def test_packages_that_behave_the_same_have_one_key(package):
    hotter = replace(package, config={**package.config, "temperature": 2.0})
    retrained = replace(package, digest="ab" * 32)
    moved = replace(package, checkpoint=Path("elsewhere"))

    assert package.key == moved.key
    assert 3 == len({package.key, hotter.key, retrained.key})


def test_a_package_is_logged_once(client, run, package, model):
    again = log_package(client, run, package, name=NAME)

    assert model.model_id == again.model_id
    assert "READY" == str(again.status)
    assert package.key == model.tags[MODEL_KEY_TAG]
    outputs = client.get_run(run.info.run_id).outputs.model_outputs
    assert [model.model_id] == [output.model_id for output in outputs]


def test_an_upload_that_a_kill_cut_short_is_completed(client, run, package):
    other = replace(package, digest="cd" * 32)
    dying = killed_after(1, of=["log_model_artifacts"])
    with pytest.raises(Killed):
        log_package(dying, run, other, name=NAME)
    found = log_package(client, run, other, name=NAME)

    tagged = client.search_logged_models(
        [run.info.experiment_id], f"tags.`{MODEL_KEY_TAG}` = '{other.key}'"
    )
    assert [found.model_id] == [entry.model_id for entry in tagged]
    assert "READY" == str(found.status)


def test_files_that_were_deleted_are_uploaded_again(client, run, package):
    other = replace(package, digest="ef" * 32)
    first = log_package(client, run, other, name=NAME)
    shutil.rmtree(first.artifact_location)
    again = log_package(client, run, other, name=NAME)

    assert first.model_id == again.model_id
    assert (Path(again.artifact_location) / "MLmodel").is_file()


def test_a_version_is_made_once_for_its_key(client, run, model, version):
    before = versions(client)
    again = made(client, run, model, "the first")

    assert version.version == again.version
    assert before == versions(client)
    assert "card of the first" == version.description
    assert ("the first", "ours") == (version.tags[REGISTRATION_KEY_TAG], version.tags["note"])
    assert run.info.run_id == version.run_id
    assert "Restricted" in client.get_registered_model(NAME).description


def test_another_key_is_another_version_of_the_same_model(client, run, model, version):
    other = made(client, run, model, "the second")

    assert version.version != other.version
    assert version.source == other.source
    assert version.version == find_version(client, NAME, "the first").version
    assert find_version(client, NAME, "no such") is None
    assert find_version(client, "no such", "the first") is None


def test_of_two_versions_with_one_key_the_oldest_counts(client, run, version):
    """Two processes may both have looked before either made its own."""
    for _ in range(10):
        client.create_model_version(
            NAME, version.source, run_id=run.info.run_id, tags={REGISTRATION_KEY_TAG: "twins"}
        )
    twins = sorted(
        int(found.version)
        for found in client.search_model_versions(f"name = '{NAME}'")
        if found.tags.get(REGISTRATION_KEY_TAG) == "twins"
    )

    # By number: as text, "10" comes before "9".
    assert 10 == len(twins)
    assert twins[0] == int(find_version(client, NAME, "twins").version)


def test_an_alias_is_moved_and_left_where_it_is(client, version):
    number = str(version.version)
    set_alias(client, NAME, CHAMPION, version=number)
    set_alias(client, NAME, CANDIDATE, version=number)
    assert {CHAMPION: number, CANDIDATE: number} == aliases_of(client, NAME)

    # A client that would die of a write: there is none.
    set_alias(killed_after(1, of=["set_registered_model_alias"]), NAME, CANDIDATE, version=number)


def test_a_model_that_was_never_registered_has_no_aliases(client):
    with pytest.raises(TrackingError, match="'nobody' must exist, got none; run the stage regist"):
        aliases_of(client, "nobody")


def test_a_store_that_is_away_is_no_missing_model(client, monkeypatch):
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(MlflowException):
        aliases_of(MlflowClient("http://127.0.0.1:9"), NAME)


def test_a_name_that_the_store_refuses_is_no_model_that_is_there(client, run, model):
    from mlflow.exceptions import MlflowException

    tags = {REGISTRATION_KEY_TAG: "the first"}
    with pytest.raises(MlflowException, match="name"):
        ensure_version(
            client, "a/b", model, run_id=run.info.run_id, tags=tags, description="a card"
        )


def test_a_versions_checkpoint_is_what_was_packed(client, package, version):
    with checkpoint_folder(client, version) as folder:
        for name in ("model.safetensors", "config.json", "tokenizer.json"):
            assert (package.checkpoint / name).read_bytes() == (folder / name).read_bytes()


def test_a_version_whose_files_are_gone_is_reported_with_its_folder(client, run, model, tmp_path):
    source = shutil.copytree(model.artifact_location, tmp_path / "copy")
    lost = client.create_model_version(NAME, str(source), run_id=run.info.run_id)
    shutil.rmtree(source)

    told = rf"must have its files in '{source}', got no such fol"
    with pytest.raises(TrackingError, match=told), version_folder(client, lost):
        pytest.fail("a folder that is gone was found")


@each_row("tagged, received", [(None, None), ("e0" * 32, None), ("own", "e0" * 32)])
def test_weights_that_were_not_registered_are_not_handed_out(
    client, run, model, package, tagged, received
):
    tags = {CHECKPOINT_DIGEST_TAG: package.digest if tagged == "own" else tagged or ""}
    source = model.artifact_location
    other = client.create_model_version(NAME, source, run_id=run.info.run_id, tags=tags)
    if received:
        write_record(receipt(version=str(other.version), checkpoint_digest=received), RECEIPT)
    told = "must have the weights that were registered, got others"
    with pytest.raises(TrackingError, match=told), checkpoint_folder(client, other):
        pytest.fail("unknown weights were handed out")


def test_a_checkpoint_outside_of_its_version_is_not_handed_out(
    client, run, model, package, tmp_path
):
    source = shutil.copytree(model.artifact_location, tmp_path / "copy")
    shutil.copytree(package.checkpoint, tmp_path / "outside")
    note = source / "MLmodel"
    note.write_text(note.read_text().replace("path: artifacts/checkpoint", "path: ../outside"))
    tags = {CHECKPOINT_DIGEST_TAG: package.digest}
    away = client.create_model_version(NAME, str(source), run_id=run.info.run_id, tags=tags)

    with pytest.raises(TrackingError, match="got others"), checkpoint_folder(client, away):
        pytest.fail("a folder outside was handed out")
