import shutil
from pathlib import Path

from flows.cli import run_command

ROOT = Path(__file__).parents[3]


def test_a_port_must_be_one(restored, tmp_path, monkeypatch, capfd):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)

    assert 2 == run_command(["ui", "--prefect-port", "70000"])
    assert "--prefect-port: " in capfd.readouterr().err
