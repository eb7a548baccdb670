import shutil
from pathlib import Path

from flows.cli import run_command

ROOT = Path(__file__).parents[3]


def test_check_says_that_params_yaml_is_usable(restored, tmp_path, monkeypatch, capsys):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)

    assert 0 == run_command(["check"])
    assert "params.yaml is usable\n" == capsys.readouterr().out
