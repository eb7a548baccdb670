import json
from pathlib import Path

import pandas as pd
import pytest
from memory_store import emptied, enter_memory_project
from registry_project import register, write_project

from astra_core.files import file_digest, folder_digest
from tasks.records.models import Parent
from tasks.tracking.lineage.logged import (
    digests_of_versions,
    lineage_record,
    log_inputs,
    log_parent,
)
from tasks.tracking.store import connect

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def client(memory_folder):
    with pytest.MonkeyPatch.context() as patch:
        enter_memory_project(emptied(memory_folder), patch)
        yield connect()


@pytest.fixture
def run_id(client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return client.create_run("0").info.run_id


def inputs_of(client, run_id):
    return {entry.dataset.name: entry for entry in client.get_run(run_id).inputs.dataset_inputs}


def tags_of(entry):
    return {tag.key: tag.value for tag in entry.tags}


def write_tables(folder, *sizes):
    for number, size in enumerate(sizes):
        path = folder / f"part {number}" / "table.parquet"
        path.parent.mkdir(parents=True)
        pd.DataFrame({"text": ["x"] * size}).to_parquet(path)
    (folder / "notes.txt").write_text("no rows here\n")
    return folder


def test_a_folder_is_known_by_the_bytes_and_rows_of_all_its_files(client, run_id, tmp_path):
    folder = write_tables(tmp_path / "prompts", 3, 4)
    log_inputs(client, run_id, {"seen": folder})
    dataset = inputs_of(client, run_id)["seen"].dataset

    assert folder_digest(folder)[:36] == dataset.digest
    assert {"num_rows": 7} == json.loads(dataset.profile)
    assert {"uri": folder.as_posix()} == json.loads(dataset.source)


@pytest.mark.parametrize(("name", "num_rows"), [("table.parquet", 2), ("lines.txt", None)])
def test_a_file_is_known_by_its_bytes(client, run_id, tmp_path, name, num_rows):
    path = tmp_path / name
    if path.suffix == ".parquet":
        pd.DataFrame({"text": ["x", "y"]}).to_parquet(path)
    else:
        path.write_text("one\ntwo\n")
    log_inputs(client, run_id, {"file": path})
    dataset = inputs_of(client, run_id)["file"].dataset

    assert file_digest(path)[:36] == dataset.digest
    assert {"num_rows": num_rows} == json.loads(dataset.profile)


def test_what_does_not_exist_was_not_seen(client, run_id, tmp_path):
    log_inputs(client, run_id, {"gone": tmp_path / "gone", "here": write_tables(tmp_path / "d", 1)})

    assert {"here"} == set(inputs_of(client, run_id))


def test_a_second_time_changes_nothing_and_other_bytes_are_another_input(client, run_id, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("one\n")
    for _ in range(2):
        log_inputs(client, run_id, {"file": path})
    once = client.get_run(run_id).inputs.dataset_inputs
    path.write_text("two\n")
    log_inputs(client, run_id, {"file": path})

    assert 1 == len(once)
    assert 2 == len(client.get_run(run_id).inputs.dataset_inputs)


def test_dvcs_digest_is_a_tag_where_its_lock_file_names_the_path(client, run_id, tmp_path):
    write_tables(tmp_path / "data", 1)
    (tmp_path / "other.txt").write_text("x")
    (tmp_path / "dvc.lock").write_text(
        "stages:\n  prompts:\n    outs:\n    - path: data\n      md5: 4f1c.dir\n"
    )
    log_inputs(client, run_id, {"a": Path("data"), "b": Path("other.txt")})
    found = inputs_of(client, run_id)

    assert {"mlflow.data.context": "a", "dvc.md5": "4f1c.dir"} == tags_of(found["a"])
    assert {"mlflow.data.context": "b"} == tags_of(found["b"])


def test_a_parent_is_named_by_tags_and_its_model_is_an_input(client, run_id):
    from mlflow.entities import LoggedModelOutput

    own = client.create_run("0").info.run_id
    models = [
        client.create_logged_model("0", name="a", tags={"astra.checkpoint_digest": digest})
        for digest in ("d0" * 32, "d1" * 32)
    ]
    client.log_outputs(own, [LoggedModelOutput(model.model_id, step=0) for model in models])
    parent = Parent("d1" * 32, "key", "attacker", "1", "champion", own)
    for _ in range(2):
        log_parent(client, run_id, parent)
    run = client.get_run(run_id)

    assert parent.tags().items() <= run.data.tags.items()
    assert "attacker version 1" == run.data.tags["astra.parent"]
    assert "1" == run.data.tags["astra.parent_version"]
    assert own == run.data.tags["astra.parent_run_id"]
    assert [models[1].model_id] == [each.model_id for each in run.inputs.model_inputs]


@pytest.mark.parametrize(
    "parent", [Parent("d1" * 32, "key"), Parent("d1" * 32, version="7", run_id="ab" * 16)]
)
def test_a_parent_that_no_registry_has_is_named_by_tags_alone(client, run_id, parent):
    log_parent(client, run_id, parent)
    run = client.get_run(run_id)

    assert "d1" * 32 == run.data.tags["astra.parent_digest"]
    assert not run.inputs.model_inputs


def test_without_a_parent_nothing_is_recorded(client, run_id):
    log_parent(client, run_id, None)

    assert not [name for name in client.get_run(run_id).data.tags if name.startswith("astra.pa")]


def test_a_lineage_is_of_tags_once_and_of_a_file_now(client, run_id):
    client.create_registered_model("lineages")
    old, new = (
        client.create_model_version("lineages", "x", run_id=run_id, tags=tags)
        for tags in ({"astra.run_key": "old"}, {"algorithm": "dpo"})
    )
    assert {"astra.run_key": "old"} == lineage_record(client, old)

    client.log_dict(run_id, {"astra.run_key": "kept", "astra.target_digest": "7a"}, "lineage.json")
    assert "kept" == lineage_record(client, new)["astra.run_key"]
    found = lineage_record(client, old)
    assert ("old", "7a") == (found["astra.run_key"], found["astra.target_digest"])


def test_the_data_of_versions_is_known_by_dvcs_digests(memory_folder, monkeypatch):
    folder = emptied(memory_folder)
    enter_memory_project(folder, monkeypatch)
    assert frozenset() == digests_of_versions()
    write_project(folder)
    digest = "0123456789abcdef0123456789abcdef.dir"
    (folder / "dvc.lock").write_text(
        f"stages:\n  prompts:\n    outs:\n    - path: data/prompts\n      md5: {digest}\n"
    )
    register()

    assert frozenset({digest}) == digests_of_versions()
