"""The whole flow: refused before it starts, and once for real on a project of toy size."""

import json

import pytest
from project import run_in
from shared import finished_project

from astra_core.errors import ConfigurationError
from flows.errors import StageError
from flows.orchestration.reports import PipelineReport
from flows.training import red_team_training, stage_runner
from tasks.params.schema import Params

pytestmark = pytest.mark.real


def test_unusable_params_stop_the_flow_before_any_stage(tmp_path, monkeypatch, prefect_server):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("training: {lrr: 1}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"training\.lrr is not a known key"):
        red_team_training()

    assert not (tmp_path / ".astra").exists()
    assert not (tmp_path / "dvc.yaml").exists()


def test_a_stage_gets_the_limit_of_its_own_from_params(toy, in_flow):
    folder = toy("import time; time.sleep(60)")
    flow = {"retries": 0, "timeouts_s": {"toy": 3.0}}
    params = Params.model_validate_json(json.dumps({"flow": flow}))
    report = PipelineReport()
    with pytest.raises(StageError, match="stage toy must end within 3 s"):
        in_flow(stage_runner(params, report), "toy")

    assert ["TimedOut"] == [outcome.state for outcome in report.outcomes]
    assert not (folder / "out.txt").exists()


@pytest.mark.wide
@pytest.mark.timeout(1800)
def test_astra_run_trains_then_skips_and_registers_again_what_was_lost(tmp_path, tmp_path_factory):
    finished = finished_project(tmp_path_factory)
    folder = finished.copy_to(tmp_path / "project")
    second = run_in(folder, "-m", "flows.cli", "run")
    for file in folder.glob("mlflow.db*"):
        file.unlink()
    third = run_in(folder, "-m", "flows.cli", "run")

    assert ["", ""] == [result.stderr for result in (second, third)]
    assert "up to date" not in finished.said
    assert 7 == second.stdout.count("up to date")
    assert "registration the registry has lost this version: once more" in third.stdout
    for said in (finished.said, second.stdout, third.stdout):
        assert "registered     attacker version 1" in said
        assert "promotion      attacker version 1" in said
    assert "up to date" in run_in(folder, "-m", "dvc", "status").stdout
