import json
import re
import shutil
from pathlib import Path

import pytest
from dvc.repo import Repo
from registry_project import (
    enter_project,
    register,
    without_pictures,
    write_checkpoint,
    write_project,
)

from astra_core.models.folders import attacker_digest
from flows.cli import run_command
from flows.runs.turns import in_turn
from tasks.params.yaml_files import load_yaml

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[3]
STAGE = """\
stages:
  make:
    cmd: "true"
    outs:
    - data/prompts
    - data/valid
    - data/rollouts
    - models/attacker
"""


@pytest.fixture
def project(dvc_project, monkeypatch):
    """A registered attacker that DVC has in its cache."""
    enter_project(dvc_project, monkeypatch)
    without_pictures(monkeypatch)
    write_project(dvc_project)
    shutil.copy(Path(__file__).parents[3] / "params.yaml", dvc_project)
    Path("dvc.yaml").write_text(STAGE, encoding="utf-8")
    _commit()
    register()
    return dvc_project


def _commit():
    with Repo(".") as repo:
        repo.commit(force=True)


def test_a_version_comes_back_although_nobody_committed_its_lock(restored, project, capfd):
    registered = attacker_digest(Path("models/attacker"))
    write_checkpoint(Path("models/attacker"), seed=1)
    _commit()
    assert registered != attacker_digest(Path("models/attacker"))

    assert 0 == run_command(["restore", "candidate"])
    told = capfd.readouterr().out
    assert registered == attacker_digest(Path("models/attacker"))
    assert f"weights      models/attacker is that of version 1, {registered[:16]}" in told
    assert "prompts      data/prompts is that of version 1" in told
    assert re.search(r"undo +cp \S+/params.yaml \S+/dvc.lock \. && dvc checkout", told)


def test_a_file_of_prompts_that_changed_since_is_named(restored, project, capfd):
    Path("my.csv").write_text("text\nhello\n", encoding="utf-8")
    params = load_yaml(Path("params.yaml").read_text(encoding="utf-8"), subject="p", way_out="c")
    params["prompts"] |= {"source": "file", "path": "my.csv"}
    Path("params.yaml").write_text(json.dumps(params), encoding="utf-8")
    prompts = '  prompts: {cmd: "true", deps: [my.csv], outs: [data/prompts]}\n'
    toy = STAGE.replace("    - data/prompts\n", "") + prompts
    Path("dvc.yaml").write_text(toy, encoding="utf-8")
    _commit()
    for name in ("params.yaml", "dvc.lock"):
        shutil.copy(name, next(Path("mlruns").rglob(f"evaluation/*/{name}")))

    assert 0 == run_command(["restore", "1"])
    assert "my.csv" not in capfd.readouterr().out
    Path("my.csv").write_text("text\nbye\n", encoding="utf-8")
    Path("dvc.yaml").write_text(toy, encoding="utf-8")
    assert 0 == run_command(["restore", "1"])
    assert "input        my.csv is modified: a run makes what " in capfd.readouterr().out


def test_other_weights_than_those_registered_are_told(restored, project, capfd):
    lock = next(Path("mlruns").rglob("evaluation/*/dvc.lock"))
    write_checkpoint(Path("models/attacker"), seed=1)
    _commit()
    shutil.copy("dvc.lock", lock)

    assert 2 == run_command(["restore", "1"])
    assert "error: models/attacker must be that of version 1, " in capfd.readouterr().err


def test_nothing_is_put_back_between_two_stages_of_a_run(restored, project, capfd):
    with in_turn():
        assert 2 == run_command(["restore", "1"])

    assert "no run may be at work here, got one (PID " in capfd.readouterr().err


def test_a_version_without_its_lock_says_so(restored, project, capfd):
    next(Path("mlruns").rglob("evaluation/*/dvc.lock")).unlink()

    assert 2 == run_command(["restore", "1"])
    told = capfd.readouterr().err
    assert "must have been registered with params.yaml and dvc.lock, got no dvc.lock: it " in told
    assert "'astra lineage 1' says what it has" in told


def test_without_a_champion_there_is_nothing_to_export(restored, tmp_path, monkeypatch, capfd):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    enter_project(tmp_path, monkeypatch)

    assert 2 == run_command(["export", "--folder", "out"])
    told = capfd.readouterr().err.splitlines()[-1]
    assert told.startswith("error: version 'champion' of 'attacker' must be in the registry, got n")
