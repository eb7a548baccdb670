import shutil
import sqlite3
from contextlib import closing

import pytest
from registry_project import enter_project, register, write_project

from flows.registry import files_are_there, is_registered
from tasks.records.receipt import RECEIPT
from tasks.tracking.database.relocation import follow_move, moved_from
from tasks.tracking.registry.versions import version_folder
from tasks.tracking.store import connect


@pytest.fixture
def registered(tmp_path, monkeypatch):
    """A project with a registered version, in a folder with a space and an umlaut."""
    folder = tmp_path / "ä b"
    folder.mkdir()
    enter_project(folder, monkeypatch)
    write_project(folder)
    register()
    return folder


def _files_of_the_version():
    client = connect()
    with version_folder(client, client.get_model_version("attacker", "1")) as folder:
        assert (folder / "MLmodel").is_file()
        return folder


@pytest.mark.real
def test_a_moved_project_finds_its_artifacts(registered, tmp_path, monkeypatch):
    moved = tmp_path / "ö moved"
    registered.rename(moved)
    monkeypatch.chdir(moved)

    # The empty store that tests share was made in the folder of another.
    assert str(registered) in moved_from(moved / "mlflow.db")
    assert moved in _files_of_the_version().parents
    assert () == moved_from(moved / "mlflow.db")
    run = connect().search_runs(["1"])[0]
    assert run.info.artifact_uri.startswith(str(moved))
    assert connect().list_artifacts(run.info.run_id)


@pytest.mark.real
def test_a_copy_leaves_its_original_alone(registered, tmp_path, monkeypatch):
    copy = tmp_path / "copy"
    shutil.copytree(registered, copy)
    monkeypatch.chdir(copy)

    assert copy in _files_of_the_version().parents
    assert registered.is_dir()
    monkeypatch.chdir(registered)
    assert registered in _files_of_the_version().parents


@pytest.mark.real
def test_artifacts_that_did_not_come_along_are_left_where_they_are(registered, tmp_path):
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(registered / "mlflow.db", alone)

    assert () == follow_move(alone / "mlflow.db")


@pytest.mark.real
def test_no_file_of_a_version_names_a_folder_of_this_machine(registered, tmp_path):
    texts = {
        path: path.read_bytes() for path in (registered / "mlruns").rglob("*") if path.is_file()
    }

    assert [] == [path.name for path, text in texts.items() if str(tmp_path).encode() in text]


@pytest.mark.real
def test_a_version_whose_files_are_gone_is_not_registered(registered):
    assert is_registered(registered / RECEIPT)
    assert files_are_there("attacker", "1")
    shutil.rmtree(registered / "mlruns")

    assert not is_registered(registered / RECEIPT)
    assert not files_are_there("attacker", "1")
    assert not files_are_there("attacker", "7")


def test_what_is_no_store_names_nothing(tmp_path):
    (tmp_path / "text.db").write_bytes(b"no database" * 100)
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE x (y)")

    assert () == moved_from(tmp_path / "none.db")
    assert () == moved_from(tmp_path / "text.db")
    assert () == moved_from(tmp_path / "other.db")
