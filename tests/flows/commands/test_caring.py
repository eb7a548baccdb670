import json
import os
import shutil
from pathlib import Path

from flows.cli import run_command

ROOT = Path(__file__).parents[3]


def test_nothing_is_removed_without_yes(restored, tmp_path, monkeypatch, capsys):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "runs" / "0123456789abcdef").mkdir(parents=True)
    os.utime(tmp_path / "runs" / "0123456789abcdef", (0, 0))

    assert 0 == run_command(["gc"])
    assert "would remove 1 folders" in capsys.readouterr().out
    assert 0 == run_command(["gc", "--json"])
    (folder,) = json.loads(capsys.readouterr().out)["folders"]
    assert "runs/0123456789abcdef" == folder["path"]
    assert 0 == run_command(["gc", "--yes"])
    assert [] == list(Path("runs").iterdir())
    assert not Path("mlflow.db").exists()
