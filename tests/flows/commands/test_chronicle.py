import json
import shutil
from pathlib import Path

import pytest
from registry_project import enter_project
from typer.testing import CliRunner

from astra_core.errors import DataError
from flows.cli import app
from tasks.tracking.lineage.logged import log_inputs
from tasks.tracking.store import connect

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[3]


@pytest.fixture
def registry(tmp_path, monkeypatch, restored):
    enter_project(tmp_path, monkeypatch)
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    return connect()


def _shown(*words):
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert 0 == result.exit_code
    return result.stdout


def _register(client, commit="unknown", **tags):
    if not client.search_registered_models():
        client.create_registered_model("attacker")
    run = client.create_run("0", tags={"git.commit": commit, "git.dirty": "true"})
    rates = {"attack_success_rate": ".5", "attack_success_rate_low": ".4"}
    tags = rates | {"attack_success_rate_high": ".6", "lift": ".2", "algorithm": "dpo"} | tags
    client.create_model_version("attacker", source="x", run_id=run.info.run_id, tags=tags)
    return run.info.run_id


def test_an_empty_registry_says_so_and_is_not_made(tmp_path, monkeypatch, restored):
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    assert "no version is registered yet" in _shown("history")
    assert [] == json.loads(_shown("history", "--json"))
    assert "no champion yet" in _shown("champion")
    assert json.loads(_shown("champion", "--json")) is None
    with pytest.raises(DataError, match="must be registered, got an empty registry"):
        _shown("lineage", "1")
    assert not (tmp_path / "mlflow.db").exists()


def test_history_has_a_line_for_each_version(registry):
    _register(registry, seed="1")
    _register(registry, seed="2", **{"promotion.decision": "refused", "astra.parent_version": "1"})
    registry.set_registered_model_alias("attacker", "champion", "1")
    newest, oldest = _shown("history").splitlines()

    assert "version 2" in newest
    assert "refused, trained on from version 1" in newest
    assert "version 1 (champion)" in oldest
    assert "dpo seed 1  success 0.500 [0.400, 0.600], gain +0.200  not decided" in oldest
    assert ["2", "1"] == [each["version"] for each in json.loads(_shown("history", "--json"))]


def test_the_champion_is_shown_with_the_reasons_of_its_decision(registry):
    _register(registry, **{"promotion.decision": "promoted", "promotion.reasons": "it is better"})
    registry.set_registered_model_alias("attacker", "champion", "1")
    told = _shown("champion")

    assert "version 1 (champion)" in told
    assert "decision     it is better" in told
    assert "astra lineage 1" in told
    assert "1" == json.loads(_shown("champion", "--json"))["version"]


def test_a_lineage_says_how_to_get_everything_back(registry, tmp_path):
    (tmp_path / "data").mkdir()
    run_id = _register(registry, commit="0123456789abcdef0")
    log_inputs(registry, run_id, {"prompts": Path("data")})
    told = _shown("lineage", "1")

    assert "commit 0123456789abcdef, with changes that were not committed" in told
    assert "prompts      data, " in told
    assert "mlflow artifacts download -u models:/attacker/1 -d weights" in told
    assert f"mlflow artifacts download -r {run_id} -d run" in told
    assert "git checkout 0123456789abcdef\n" in told
    assert "             astra restore 1\n" in told
    assert run_id == json.loads(_shown("lineage", "1", "--json"))["summary"]["run_id"]


def test_without_a_commit_git_is_not_asked_for_it(registry):
    _register(registry)

    assert "git checkout" not in _shown("lineage", "1")
