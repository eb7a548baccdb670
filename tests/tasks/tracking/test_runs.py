"""Promises of the run log: one run per key, each step once, and training outlives its tracker."""

import math
import multiprocessing
import sqlite3
import subprocess
from pathlib import Path

import pytest
from registry_project import RUN_KEY, enter_project

from tasks.params.schema import Params
from tasks.tracking.errors import TrackingError
from tasks.tracking.runs import CHANGES, RunLog, find_run, open_run, sync_steps
from tasks.tracking.store import connect, mlflow_server_command, project_root, tracking_uri

pytestmark = pytest.mark.real

EXPERIMENT = "red-team-training"


@pytest.fixture
def project(in_memory):
    return in_memory


@pytest.fixture
def on_disk(tmp_path, monkeypatch):
    return enter_project(tmp_path, monkeypatch)


def history(run_id, name):
    return [(metric.step, metric.value) for metric in connect().get_metric_history(run_id, name)]


def test_tracking_uri_is_absolute_and_yields_to_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)

    assert f"sqlite:///{tmp_path}/mlflow.db" == tracking_uri()

    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")

    assert "http://127.0.0.1:5000" == tracking_uri()


def test_project_root_leaves_the_temporary_copy_of_an_experiment():
    """The copy is deleted when the experiment ends; a database in it would go with it."""
    copy = Path("/srv/project/.dvc/tmp/exps/tmpk3j2/sub")

    assert Path("/srv/project") == project_root(copy)
    assert Path("/srv/project") == project_root(Path("/srv/project/sweeps/points/0a1b"))
    assert Path("/srv/other") == project_root(Path("/srv/other"))


def test_connect_switches_to_the_write_ahead_log(on_disk):
    connect()

    with sqlite3.connect(on_disk / "mlflow.db") as connection:
        mode = connection.execute("PRAGMA journal_mode").fetchone()[0]

    assert "wal" == mode


def test_open_run_finds_the_same_run_again(project):
    first = open_run(RUN_KEY, experiment=EXPERIMENT, params={"seed": 1})
    first.finish("FAILED")
    second = open_run(RUN_KEY, experiment=EXPERIMENT, params={"seed": 1})

    assert first.run_id == second.run_id
    assert "RUNNING" == connect().get_run(second.run_id).info.status

    second.finish()

    assert "FINISHED" == connect().get_run(second.run_id).info.status


def test_open_run_records_params_flat_and_where_the_run_came_from(project, monkeypatch):
    monkeypatch.setenv("DVC_STAGE", "training")
    monkeypatch.setenv("DVC_EXP_NAME", "windy-owl")

    log = open_run(RUN_KEY, experiment=EXPERIMENT, params=Params(), tags={"astra.kind": "training"})
    run = connect().get_run(log.run_id)

    assert "dpo" == run.data.params["training.algorithm.name"]
    assert "0.0003" == run.data.params["training.lr"]
    assert "null" == run.data.params["system.separator"]
    assert "training" == run.data.tags["dvc.stage"]
    assert "windy-owl" == run.data.tags["dvc.exp_name"]
    assert "unknown" == run.data.tags["git.commit"]
    assert "training" == run.data.tags["astra.kind"]
    assert run.data.tags["version.mlflow"].startswith("3.17")


def test_open_run_cuts_long_values_so_that_different_ones_stay_different(project):
    params = {
        "one": "a" * 7000 + "x",
        "two": "a" * 7000 + "y",
        "many": {str(i): i for i in range(250)},
    }

    recorded = (
        connect()
        .get_run(open_run(RUN_KEY, experiment=EXPERIMENT, params=params).run_id)
        .data.params
    )

    assert 6000 == len(recorded["one"]) == len(recorded["two"])
    assert recorded["one"] != recorded["two"]
    assert 252 == len(recorded)


def test_open_run_leaves_params_that_were_recorded_before(project):
    first = open_run(RUN_KEY, experiment=EXPERIMENT, params={"threads": 1})
    second = open_run(RUN_KEY, experiment=EXPERIMENT, params={"threads": 2, "new": True})

    assert first.run_id == second.run_id
    assert {"threads": "1", "new": "true"} == connect().get_run(second.run_id).data.params


def test_log_step_keeps_steps_until_they_are_sent(project):
    log = open_run(RUN_KEY, experiment=EXPERIMENT, params={})
    log.log_step({"train/loss": 0.5}, 1)

    assert [] == history(log.run_id, "train/loss")

    for step in range(2, 51):
        log.log_step({"train/loss": 1 / step}, step)

    assert list(range(1, 51)) == [step for step, _ in history(log.run_id, "train/loss")]


def test_log_step_sends_after_some_seconds(project):
    run_id = open_run(RUN_KEY, experiment=EXPERIMENT, params={}).run_id
    log = RunLog(connect(), run_id, flush_seconds=0.0)
    log.log_step({"train/loss": 0.5}, 1)

    assert [(1, 0.5)] == history(run_id, "train/loss")


def test_log_step_leaves_out_what_is_no_finite_number(project):
    log = open_run(RUN_KEY, experiment=EXPERIMENT, params={})
    log.log_step(
        {
            "a/nan": math.nan,
            "a/inf": math.inf,
            "a/none": None,
            "a/text": "x",
            "a/b(c)": 2,
            "step": 1,
        },
        1,
    )
    log.finish()

    assert {"a/b_c_": 2.0} == connect().get_run(log.run_id).data.metrics


def test_log_step_does_not_repeat_steps_of_the_killed_run(project):
    killed = open_run(RUN_KEY, experiment=EXPERIMENT, params={})
    for step in (1, 2, 3):
        killed.log_step({"train/loss": step / 10}, step)
    killed.flush()

    resumed = open_run(RUN_KEY, experiment=EXPERIMENT, params={})
    for step in (2, 3, 4):
        resumed.log_step({"train/loss": step / 10, "eval/score_mean": 0.5}, step)
    resumed.finish()

    assert [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4)] == history(resumed.run_id, "train/loss")
    assert [2, 3, 4] == [step for step, _ in history(resumed.run_id, "eval/score_mean")]


def test_sync_steps_adds_only_what_is_missing(project):
    log = open_run(RUN_KEY, experiment=EXPERIMENT, params={})
    log.log_step({"train/loss": 0.5}, 1)
    log.finish()
    rows = [
        {"step": 1, "iteration": 1, "train/loss": 0.5, "eval/score_mean": math.nan},
        {"step": 2, "iteration": 1, "train/loss": 0.4, "eval/score_mean": 0.2},
    ]

    assert 2 == sync_steps(log.run_id, rows)
    assert 0 == sync_steps(log.run_id, rows)
    assert [(1, 0.5), (2, 0.4)] == history(log.run_id, "train/loss")
    assert [(2, 0.2)] == history(log.run_id, "eval/score_mean")
    assert "FINISHED" == connect().get_run(log.run_id).info.status


def test_sync_steps_sends_more_than_one_batch(project):
    log = open_run(RUN_KEY, experiment=EXPERIMENT, params={})

    assert 2500 == sync_steps(
        log.run_id, ({"step": step, "train/loss": 1.0} for step in range(2500))
    )
    assert 2500 == len(history(log.run_id, "train/loss"))


def test_a_server_that_is_away_costs_one_line(project, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

    log = open_run(RUN_KEY, experiment=EXPERIMENT, params={"seed": 1})
    for step in range(100):
        log.log_step({"train/loss": 0.5}, step)
    log.flush()
    log.finish()

    lines = capsys.readouterr().err.splitlines()
    assert 1 == len(lines)
    assert lines[0].startswith("warning: tracking is off, the run goes on (ConnectionRefusedError")


def test_a_store_that_breaks_during_training_costs_one_line_and_recovers(on_disk, capsys):
    log = open_run(RUN_KEY, experiment=EXPERIMENT, params={})
    with sqlite3.connect(on_disk / "mlflow.db") as connection:
        connection.execute("ALTER TABLE metrics RENAME TO metrics_away")
    for step in range(120):
        log.log_step({"train/loss": 0.5}, step)

    assert 1 == len(capsys.readouterr().err.splitlines())

    with sqlite3.connect(on_disk / "mlflow.db") as connection:
        connection.execute("ALTER TABLE metrics_away RENAME TO metrics")
    log.finish()

    assert 120 == len(history(log.run_id, "train/loss"))


def test_a_deleted_experiment_is_explained(project, capsys):
    connect().delete_experiment(connect().create_experiment(EXPERIMENT))

    with pytest.raises(TrackingError, match="mlflow experiments restore --experiment-id 1"):
        find_run(connect(), RUN_KEY, experiment=EXPERIMENT)

    log = open_run(RUN_KEY, experiment=EXPERIMENT, params={})

    assert log.run_id is None
    assert "must be active" in capsys.readouterr().err


def _open_in_process(folder, key, results):
    import os

    os.chdir(folder)
    results.put(open_run(key, experiment=EXPERIMENT, params={"seed": 1}).run_id)


def test_processes_may_meet_on_a_new_database(tmp_path, monkeypatch):
    """A sweep starts its runs at the same moment, and the first has to make the tables."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [
        context.Process(target=_open_in_process, args=(tmp_path, letter * 64, results))
        for letter in "abc"
    ]
    for process in processes:
        process.start()
    run_ids = {results.get(timeout=300) for _ in processes}
    for process in processes:
        process.join()

    assert 3 == len(run_ids - {None})


def test_mlflow_server_command_is_the_light_one(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    arguments, environment = mlflow_server_command(5055)

    assert (
        f"sqlite:///{tmp_path}/mlflow.db" == arguments[arguments.index("--backend-store-uri") + 1]
    )
    assert ["--host", "127.0.0.1", "--port", "5055", "--workers", "1"] == arguments[-6:]
    assert "false" == environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"]

    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    with pytest.raises(TrackingError, match="open that address instead"):
        mlflow_server_command()


def test_a_run_of_code_that_was_not_committed_keeps_the_changes(project):
    for words in (["init", "-q"], ["add", "code.py"]):
        (project / "code.py").write_text("1\n")
        subprocess.run(["git", *words], cwd=project, check=True)
    names = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *names, "commit", "-qm", "one"], cwd=project, check=True)
    (project / "code.py").write_text("2\n")
    log = open_run(RUN_KEY, experiment=EXPERIMENT, params=Params())
    run = connect().get_run(log.run_id)

    assert "+2\n" in (Path(run.info.artifact_uri) / CHANGES).read_text("utf-8")
