import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
import yaml
from small_world import PARAMS, write_world

from astra_core.targets.causal_lm import CausalLM
from benchmarks.watched_stage import WORK, main
from tasks.trials.workload import replies_of_a_tree

TOLD = Path("told.json")


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A small project, and what a stage and the watch change put back afterwards."""
    write_world(tmp_path)
    params = PARAMS.model_dump(mode="json")
    params["prompts"]["num_builtin"] = 60
    params["machine"]["num_threads"] = 1
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for owner, name in (*WORK, (CausalLM, "respond")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    environment, on_terminate = dict(os.environ), signal.getsignal(signal.SIGTERM)
    yield tmp_path
    signal.signal(signal.SIGTERM, on_terminate)
    os.environ.clear()
    os.environ.update(environment)


@pytest.mark.wide
def test_models_work_for_a_part_of_a_stages_time(world):
    started = time.perf_counter()
    status = main("rollouts", TOLD)
    spent = time.perf_counter() - started

    assert 0 == status
    assert (world / "data/rollouts/rollouts.parquet").is_file()
    found = json.loads(TOLD.read_text())
    assert 0.0 < found["models"] < spent
    assert found["replies"] == PARAMS.rollouts.num_prompts * replies_of_a_tree(PARAMS)
    assert 2**20 < found["peak_bytes"]


@pytest.mark.real
def test_a_stage_without_models_spends_nothing_on_them(world):
    assert 0 == main("prompts", TOLD)
    found = json.loads(TOLD.read_text())
    assert (0.0, 0) == (found["models"], found["replies"])


def test_the_status_of_a_stage_that_fails_is_passed_on(world, capfd):
    shutil.rmtree(world / "models")

    assert 2 == main("rollouts", TOLD)
    assert 0.0 == json.loads(TOLD.read_text())["models"]
    assert "models/base" in capfd.readouterr().err
