import pytest
from small_world import PARAMS, write_world
from tiny_folders import torch_as_before

from astra_core.assembly import ModelFolders, load_system
from astra_core.engine.machine import Machine
from astra_core.engine.memory import keep_freed_memory
from tasks.machine import engine_line as module
from tasks.machine.engine_line import engine_line
from tasks.records.models import read_model_paths


@pytest.fixture
def project(tmp_path):
    with torch_as_before():
        write_world(tmp_path)
        (tmp_path / "params.yaml").write_text("training: {gradient_checkpointing: true}\n")
        yield tmp_path


def test_the_line_is_the_plan_of_the_project_s_attacker_as_it_would_train(project):
    folders = ModelFolders.of(read_model_paths(project / "models" / "base"))
    system = load_system(PARAMS.system, folders, machine=PARAMS.machine)
    plan = system.plan.learning(precision="fp32", recomputes=True)

    assert str(plan) == engine_line(project)
    assert keep_freed_memory() == ("freed memory kept" in str(plan))


def test_without_models_the_line_is_the_machine_s(tmp_path):
    assert Machine.here().describe() == engine_line(tmp_path)


def test_models_too_large_to_load_in_passing_are_left_alone(project, monkeypatch):
    monkeypatch.setattr(module, "MAX_LOADED_GB", 0.0)

    assert Machine.here().describe() == engine_line(project)


def test_parameters_that_are_wrong_are_left_to_those_who_say_so(project):
    (project / "params.yaml").write_text("training: {no_such: 1}\n")

    assert Machine.here().describe() == engine_line(project)
