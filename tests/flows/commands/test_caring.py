import json
import os
import shutil
from pathlib import Path

from flows.cli import run_command
from flows.runs.turns import in_turn

ROOT = Path(__file__).parents[3]


def test_nothing_is_removed_without_yes(restored, tmp_path, monkeypatch, capsys):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "runs" / "0123456789abcdef").mkdir(parents=True)
    for name in (".astra/baselines", ".astra/targets"):
        (tmp_path / name).mkdir(parents=True)
    os.utime(tmp_path / ".astra/baselines", (1e6, 1e6))
    os.utime(tmp_path / "runs" / "0123456789abcdef", (0, 0))

    assert 0 == run_command(["gc"])
    listed = capsys.readouterr().out
    assert "runs/0123456789abcdef" in listed
    assert "--yes does" in listed
    assert 0 == run_command(["gc", "--dry-run", "--json"])
    told = json.loads(capsys.readouterr().out)
    # Nothing is old in the folder of other targets.
    assert ["runs/0123456789abcdef", ".astra/baselines"] == [
        each["path"] for each in told["folders"]
    ]
    assert (False, 0) == (told["removed"], told["freed"])
    assert 0 == run_command(["gc", "--yes"])
    assert [] == list(Path("runs").iterdir())
    assert [Path(".astra/targets")] == list(Path(".astra").glob("[bt]*"))
    assert not Path("mlflow.db").exists()


def test_to_list_and_to_remove_is_a_mistake(restored, capsys):
    assert 2 == run_command(["gc", "--yes", "--dry-run"])
    assert "got both --dry-run and --yes" in capsys.readouterr().err


def test_nothing_is_removed_beside_a_run(restored, tmp_path, monkeypatch, capsys):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("runs/one").mkdir(parents=True)
    with in_turn():
        assert 2 == run_command(["gc", "--yes", "--days", "0"])

    assert "no run may be at work here, got one (PID " in capsys.readouterr().err
    assert Path("runs/one").is_dir()


def test_nothing_is_removed_beside_a_stage_of_dvc(restored, dvc_project, capsys):
    from dvc.repo import Repo

    shutil.copy(ROOT / "params.yaml", dvc_project)
    Path("runs/one").mkdir(parents=True)
    with Repo(".") as repo, repo.lock:
        assert 2 == run_command(["gc", "--yes", "--days", "0"])

    assert "no other process may be at work here" in capsys.readouterr().err
    assert Path("runs/one").is_dir()
