"""The whole flow: refused before it starts, and once for real on a project of toy size."""

import json
import shutil
import traceback
from pathlib import Path

import pytest
from project import run_in
from shared import finished_project

from astra_core.errors import ConfigurationError
from flows.errors import StageError
from flows.orchestration.reports import PipelineReport
from flows.training import red_team_training, renew_pipeline, stage_runner, usable_params
from tasks.params.schema import Params
from tasks.pipeline.order import render

ROOT = Path(__file__).parents[2]


def test_unusable_params_stop_the_flow_before_any_stage(tmp_path, monkeypatch, prefect_server):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("training: {lrr: 1}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"training\.lrr is not a known key"):
        red_team_training()

    assert not (tmp_path / ".astra").exists()
    assert not (tmp_path / "dvc.yaml").exists()


def test_what_a_plug_in_says_is_in_no_chain_that_prefect_logs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "spoken.py").write_text("raise RuntimeError('you stupid idiot')\n", "utf-8")
    Path("params.yaml").write_text("system: {scorer: {name: 'spoken:Scorer'}}\n", "utf-8")
    with pytest.raises(ConfigurationError, match="scorer 'spoken:Scorer' must be imp") as refused:
        usable_params()

    logged = "".join(traceback.format_exception(refused.value))
    assert "RuntimeError" in logged
    assert "idiot" not in logged


def test_a_stage_gets_the_limit_of_its_own_from_params(toy, in_flow):
    folder = toy("import time; time.sleep(60)")
    flow = {"retries": 0, "timeouts_s": {"toy": 3.0}}
    params = Params.model_validate_json(json.dumps({"flow": flow}))
    report = PipelineReport()
    with pytest.raises(StageError, match="stage toy must end within 3 s"):
        in_flow(stage_runner(params, report), "toy")

    assert ["TimedOut"] == [outcome.state for outcome in report.outcomes]
    assert not (folder / "out.txt").exists()


def test_dvc_yaml_follows_the_files_that_params_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    prompts = {"source": "file", "path": "mine.txt"}
    params = Params.model_validate_json(json.dumps({"prompts": prompts}))
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    renew_pipeline(params)

    assert render(params=params) == Path("dvc.yaml").read_text(encoding="utf-8")
    assert "mine.txt" in Path("dvc.yaml").read_text(encoding="utf-8")
    assert "dvc.yaml     rewritten" in capsys.readouterr().out
    renew_pipeline(params)
    assert "" == capsys.readouterr().out


@pytest.mark.slow
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
