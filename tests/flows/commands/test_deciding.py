import shutil
from pathlib import Path

import pytest
from registry_project import enter_project

from flows.cli import run_command

ROOT = Path(__file__).parents[3]


@pytest.mark.real
def test_without_a_champion_there_is_nothing_to_go_back_to(restored, tmp_path, monkeypatch, capfd):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    enter_project(tmp_path, monkeypatch)

    assert 2 == run_command(["rollback"])
    told = capfd.readouterr().err.splitlines()[-1]
    assert told.startswith("error: registered model 'attacker' must exist, got none")
