import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from each_row import each_row
from registry_project import enter_project

from tasks.tracking.registry.registered import aliases_in, has_files
from tasks.tracking.registry.registry_rows import registry_rows
from tasks.tracking.store import connect


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """Three versions: one with files, one without, one at a server; the last two have aliases."""
    folder = enter_project(tmp_path, monkeypatch)
    (folder / "mlruns/one").mkdir(parents=True)
    client = connect()
    client.create_registered_model("attacker")
    for source in (f"{folder}/mlruns/one", f"{folder}/mlruns/gone", "s3://bucket/two"):
        client.create_model_version("attacker", source=source)
    client.set_registered_model_alias("attacker", "champion", "2")
    client.set_registered_model_alias("attacker", "candidate", "3")
    return client


@pytest.mark.real
def test_the_rows_say_what_the_client_says(registry):
    rows = registry_rows()

    assert {"champion": "2", "candidate": "3"} == rows.aliases("attacker")
    for name in ("attacker", "nobody"):
        assert aliases_in(registry, name) == rows.aliases(name)
        for version in ("1", "2", "3", "4"):
            assert has_files(registry, name, version) == rows.has_files(name, version)
    assert [True, False, True] == [rows.has_files("attacker", one) for one in ("1", "2", "3")]


@pytest.mark.real
def test_a_deleted_version_has_no_files(registry):
    registry.delete_model_version("attacker", "1")
    registry.delete_model_version("attacker", "3")

    assert not registry_rows().has_files("attacker", "1")
    assert (
        {"champion": "2"} == registry_rows().aliases("attacker") == aliases_in(registry, "attacker")
    )


@pytest.mark.real
def test_after_a_move_the_rows_are_followed(registry, tmp_path, monkeypatch):
    moved = tmp_path.parent / f"{tmp_path.name} moved"
    shutil.move(tmp_path, moved)
    monkeypatch.chdir(moved)

    assert registry_rows().has_files("attacker", "1")


@each_row("address", ["http://127.0.0.1:9", "sqlite:////nowhere/mlflow.db"])
def test_a_server_and_no_store_are_left_to_the_client(address, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)

    assert registry_rows() is None


@pytest.mark.real
def test_tables_of_another_mlflow_are_left_to_the_client(tmp_path, monkeypatch):
    enter_project(tmp_path, monkeypatch, is_empty=False)
    with closing(sqlite3.connect("mlflow.db")) as other:
        other.execute("CREATE TABLE registered_model_aliases (alias, version, name)")

    assert registry_rows() is None


@pytest.mark.real
def test_to_ask_for_the_champion_imports_no_mlflow(registry):
    code = (
        "import sys; from flows.registry import alias_versions, files_are_there; "
        "alias_versions('attacker'); files_are_there('attacker', '1'); "
        "print(sorted({'mlflow', 'pandas', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(Path(__file__).parents[4])},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ("[]\n", "") == (done.stdout, done.stderr)
