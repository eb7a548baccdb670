import time

import pytest
from registry_project import RUN_KEY, enter_project

from tasks.params.schema import TrackingConfiguration
from tasks.tracking.runs import connect, find_run
from tasks.tracking.sinks import open_sinks

EXPERIMENT = "red-team-training"


def names(*, system_metrics, key=RUN_KEY):
    """The figures of a run that lasted as long as a few samples."""
    tracking = TrackingConfiguration(system_metrics=system_metrics)
    log = open_sinks(tracking, key, experiment=EXPERIMENT, params={}, tags={})
    log.log_step({"train/loss": 0.5}, 1)
    time.sleep(0.3)
    log.finish()
    run = find_run(connect(), key, experiment=EXPERIMENT)
    return set(run.data.metrics), run.info.status


@pytest.mark.real
def test_the_load_of_the_machine_is_beside_the_figures_where_it_is_asked_for(tmp_path, monkeypatch):
    enter_project(tmp_path, monkeypatch)
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.05")
    found, status = names(system_metrics=True)
    plain, _ = names(system_metrics=False, key="0" * 64)

    assert {"train/loss", "system/cpu_utilization_percentage"} <= found
    assert {"train/loss"} == plain
    assert "FINISHED" == status


def test_a_store_that_is_away_costs_no_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    tracking = TrackingConfiguration(system_metrics=True)
    log = open_sinks(tracking, RUN_KEY, experiment=EXPERIMENT, params={}, tags={})
    log.log_step({"train/loss": 0.5}, 1)
    log.finish()
