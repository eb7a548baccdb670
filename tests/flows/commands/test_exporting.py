import shutil
from pathlib import Path

import pytest
from registry_project import enter_project

from flows.cli import run_command

ROOT = Path(__file__).parents[3]


@pytest.mark.real
def test_without_a_champion_there_is_nothing_to_export(restored, tmp_path, monkeypatch, capfd):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    enter_project(tmp_path, monkeypatch)

    assert 2 == run_command(["export", "--folder", "out"])
    told = capfd.readouterr().err.splitlines()[-1]
    assert told.startswith("error: version 'champion' of 'attacker' must be in the registry, got n")
