from pathlib import Path

import pytest
from registry_project import write_reports

from tasks.params.schema import Params
from tasks.records.evaluation import read_evaluation
from tasks.records.reports import read_record
from tasks.records.training import TrainingRecord
from tasks.tracking.runs import PARENT_TAG, PARENT_VARIABLE, create_run
from tasks.tracking.store import connect
from tasks.tracking.sweeps import adopt, close_sweep, open_sweep

pytestmark = pytest.mark.real

STEPS = Path("reports/training_steps.csv")
EXPERIMENT = "red-team-training"


@pytest.fixture
def project(in_memory):
    write_reports(in_memory)
    return in_memory


def _adopt(parent, name="lr=1"):
    training = read_record(Path("reports/training.json"), TrainingRecord)
    evaluation = read_evaluation(Path("reports/evaluation.json"))
    return adopt(training, evaluation, params=Params(), steps=STEPS, name=name, parent=parent)


def test_a_training_that_was_restored_gets_a_run_nested_in_the_sweeps(project):
    parent = open_sweep("k", name="sweep k", experiment=EXPERIMENT, tags={"a": "b"})
    run = connect().get_run(_adopt(parent))

    assert (parent, "lr=1") == (run.data.tags[PARENT_TAG], run.info.run_name)
    assert "FINISHED" == run.info.status
    assert "final/attack_success_rate" in run.data.metrics
    assert "train/loss" in run.data.metrics
    assert "0.0003" == run.data.params["training.lr"]
    assert run.info.run_id == _adopt(parent)


def test_a_run_of_another_sweep_stays_there(project):
    first = open_sweep("k", name="sweep k", experiment=EXPERIMENT, tags={})
    other = open_sweep("l", name="sweep l", experiment=EXPERIMENT, tags={})
    run_id = _adopt(first)

    assert run_id == _adopt(other, name="again")
    run = connect().get_run(run_id)
    assert (first, "lr=1") == (run.data.tags[PARENT_TAG], run.info.run_name)


def test_a_run_made_in_a_point_is_nested_from_its_first_moment(project, monkeypatch):
    monkeypatch.setenv(PARENT_VARIABLE, "abc")

    assert "abc" == create_run(connect(), "k", experiment=EXPERIMENT).data.tags[PARENT_TAG]


def test_the_sweeps_run_is_found_again_and_ends_with_its_table(project):
    parent = open_sweep("k", name="sweep k", experiment=EXPERIMENT, tags={})
    for _ in range(2):
        close_sweep(parent, table="| a |", record={"b": 1}, figures={"best/x": 0.5}, is_whole=True)
        assert "FINISHED" == connect().get_run(parent).info.status
        assert parent == open_sweep("k", name="sweep k", experiment=EXPERIMENT, tags={})

    assert "RUNNING" == connect().get_run(parent).info.status
    assert 0.5 == connect().get_run(parent).data.metrics["best/x"]


def test_a_tracker_that_is_away_costs_a_line(project, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")

    assert open_sweep("k", name="k", experiment="e", tags={}) is None
    assert "warning: the sweep is not recorded in MLflow" in capsys.readouterr().err
    assert _adopt(None) is None
    close_sweep(None, table="", record={}, figures={}, is_whole=True)
