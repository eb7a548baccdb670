import shutil
from pathlib import Path

from dvc.repo import Repo
from registry_project import enter_project, receipt

from flows.status import changed_stages, stage_line, status_lines, status_record
from tasks.pipeline.names import STAGE_NAMES
from tasks.records.receipt import RECEIPT
from tasks.records.reports import write_record
from tasks.tracking.store import connect

ROOT = Path(__file__).parents[2]


def test_a_stage_without_reasons_is_up_to_date():
    assert "prompts      up to date" == stage_line("prompts", [])


def test_no_more_than_three_reasons_are_shown():
    line = stage_line("models", ["a modified", "b new", "c deleted", "d new", "e new"])

    assert "models       would run: a modified, b new, c deleted and 2 more" == line


def test_a_fresh_project_would_run_every_stage_and_has_no_champion(toy, tmp_path, monkeypatch):
    toy("")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    lines = status_lines()

    assert [f"{name:<13}would run: not made yet" for name in STAGE_NAMES] == lines[:-1]
    assert "champion     none yet" == lines[-1]
    record = status_record()
    assert {name: ["not made yet"] for name in STAGE_NAMES} == record["stages"]
    assert {} == record["aliases"]
    assert not (tmp_path / "mlflow.db").exists()


def test_a_champion_whose_files_are_gone_is_reported(toy, tmp_path, monkeypatch):
    toy("")
    enter_project(tmp_path, monkeypatch)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    (tmp_path / "files").mkdir()
    client = connect()
    client.create_registered_model("attacker")
    client.create_model_version("attacker", source=str(tmp_path / "files"))
    client.set_registered_model_alias("attacker", "champion", "1")

    assert "champion     attacker version 1" == status_lines()[-1]
    (tmp_path / "files").rmdir()
    assert "version 1, whose files are gone: restore mlruns" in status_lines()[-1]


def test_beside_a_run_the_champion_is_shown(toy, tmp_path, monkeypatch):
    toy("")
    shutil.copy(ROOT / "params.yaml", tmp_path)
    with Repo(".") as repo, repo.lock:
        first, last = status_lines()
        told = status_record()

    assert (None, {}) == (told["stages"], told["aliases"])
    assert told["at_work"] == first.removeprefix("stages       ")
    assert first.startswith("stages       no other process may be at work here, got (PID ")
    assert "champion     none yet" == last


def test_a_version_that_the_registry_lacks_is_not_up_to_date(toy, tmp_path, monkeypatch):
    toy("")
    enter_project(tmp_path, monkeypatch)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.setattr("flows.status.changes", dict)

    # As after a pull into a second clone: results are there, the receipt and the registry are not.
    assert {"registration": ["no receipt here says which version this is"]} == changed_stages()
    (tmp_path / "mlflow.db").unlink()
    write_record(receipt(), tmp_path / RECEIPT)
    assert {} == changed_stages()
    assert not (tmp_path / "mlflow.db").exists()
    assert "restore it" in status_lines()[-1]


def test_a_store_that_cannot_be_read_is_away_and_not_without_a_champion(toy, tmp_path, monkeypatch):
    toy("")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 100)
    last = status_lines()[-1]

    assert last.startswith("champion     away: sqlite:///")
    assert "file is not a database" in last
    assert status_record()["aliases"] is None
