import shutil
from pathlib import Path

from flows.cli import run_command

ROOT = Path(__file__).parents[3]


def test_check_says_that_params_yaml_is_usable(restored, tmp_path, monkeypatch, capsys):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)

    assert 0 == run_command(["check"])
    assert capsys.readouterr().out.endswith("params.yaml is usable\n")


def test_check_reads_values_and_a_preset_as_if_params_yaml_had_them(
    restored, tmp_path, monkeypatch, capsys
):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copytree(ROOT / "params", tmp_path / "params")
    monkeypatch.chdir(tmp_path)

    assert 2 == run_command(["check", "--set", "training.algorithm.options.betta=1"])
    assert "Did you mean 'beta'?" in capsys.readouterr().err
    assert 2 == run_command(["check", "--preset", "local_chat"])
    assert "models.target.path must name" in capsys.readouterr().err
    assert 0 == run_command(["check"])
