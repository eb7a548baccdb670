import shutil
from pathlib import Path

from flows.cli import run_command

ROOT = Path(__file__).parents[3]


def test_a_trial_without_the_stages_before_names_them(restored, tmp_path, monkeypatch, capfd):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)

    assert 2 == run_command(["trial"])
    assert "astra trial must find data/valid and models/base" in capfd.readouterr().err
