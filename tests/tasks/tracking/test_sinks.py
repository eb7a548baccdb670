"""Promises of the sinks: each figure once to each, and training outlives every one of them."""

import csv
import importlib.util
import sys
import time

import pytest
from each_row import each_row
from registry_project import RUN_KEY, enter_project

from astra_core.errors import ConfigurationError
from astra_parts.sink import Sink
from tasks.params.schema import TrackingConfiguration
from tasks.tracking.runs import find_run
from tasks.tracking.sinks import FOLDER, Sinks, check_sinks, open_sinks
from tasks.tracking.store import connect

EXPERIMENT = "red-team-training"


@pytest.fixture
def project(in_memory):
    return in_memory


class Torn(Sink):
    """Fails at the step that its options name; at its construction for step 0."""

    class Options(Sink.Options):
        at: int = 1

    def __init__(self, options, *, run):
        super().__init__(options, run=run)
        if not options.at:
            sys.exit(0)

    def write(self, figures, step):  # noqa: ARG002 - the step is enough here
        if step >= self.options.at:
            msg = "disk on fire"
            raise OSError(msg)
        path = self.run.folder / "steps.txt"
        with path.open("a") as file:
            file.write(f"{step} ")

    def finish(self, status):
        (self.run.folder / "status.txt").write_text(status)


def tracking(*sinks):
    return TrackingConfiguration.read({"sinks": list(sinks)}, where="tracking")


def opened(*sinks, key=RUN_KEY):
    params = {"training": {"lr": 0.5}}
    return open_sinks(tracking(*sinks), key, experiment=EXPERIMENT, params=params, tags={})


def rows(project, key=RUN_KEY):
    path = project / FOLDER / "csv" / key[:16] / "figures.csv"
    with path.open(newline="") as file:
        return [(row["step"], row["name"]) for row in csv.DictReader(file)]


def mine(**options):
    return {"name": f"{__name__}:Torn", "options": options}


def place(project):
    (folder,) = (project / FOLDER).glob("*Torn/*")
    return folder


@pytest.mark.real
def test_every_sink_gets_every_step_once_over_a_kill(project):
    killed = opened("mlflow", "csv", mine(at=9))
    for step in (1, 2):
        killed.log_step({"train/loss": 0.5, "step": step}, step)
    resumed = opened("mlflow", "csv", mine(at=9))
    for step in (1, 2, 3):
        resumed.log_step({"train/loss": 0.5, "step": step}, step)
    resumed.finish()
    run = find_run(connect(), RUN_KEY, experiment=EXPERIMENT)
    history = connect().get_metric_history(run.info.run_id, "train/loss")

    assert [("1", "train/loss"), ("2", "train/loss"), ("3", "train/loss")] == rows(project)
    assert [1, 2, 3] == sorted(metric.step for metric in history)
    assert "1 2 3 " == (place(project) / "steps.txt").read_text()
    assert "FINISHED" == (place(project) / "status.txt").read_text()


@pytest.mark.real
def test_only_those_that_are_named_are_opened(project):
    opened("csv").log_step({"train/loss": 0.5}, 1)

    assert [("1", "train/loss")] == rows(project)
    assert find_run(connect(), RUN_KEY, experiment=EXPERIMENT) is None


@pytest.mark.real
def test_no_sink_at_all_is_fine(project):
    sinks = opened()
    sinks.log_step({"train/loss": 0.5}, 1)
    sinks.finish()

    assert not (project / FOLDER).exists()


@pytest.mark.real
@pytest.mark.parametrize(
    ("at", "said"), [(0, "must not end the program, got sys.exit(0)"), (2, "got OSError")]
)
def test_a_sink_that_fails_costs_a_line_and_the_others_continue(at, said, project, capsys):
    sinks = opened(mine(at=at), "csv")
    for step in (1, 2, 3):
        sinks.log_step({"train/loss": 0.5}, step)
    sinks.finish("FAILED")
    (line,) = capsys.readouterr().err.splitlines()

    assert line.startswith(f"warning: tracking.sinks: {__name__}:Torn is off, the run goes on (")
    assert said in line
    assert 3 == len(rows(project))


def test_a_sink_of_the_pipeline_that_fails_is_reported_like_any_other(capsys):
    class Broken:
        def log_step(self, *_):
            msg = "gone"
            raise KeyError(msg)

    sinks = Sinks({"mlflow": Broken()})
    sinks.log_step({}, 1)
    sinks.log_step({}, 2)
    sinks.finish()

    assert 1 == len(capsys.readouterr().err.splitlines())


@pytest.mark.real
def test_two_runs_have_folders_of_their_own(project):
    for key in (RUN_KEY, "c0" * 32):
        opened("csv", key=key).log_step({"train/loss": 0.5}, 1)

    assert 1 == len(rows(project)) == len(rows(project, key="c0" * 32))


@each_row(
    ("sinks", "problem"),
    [
        (["mlflw"], r"unknown sink 'mlflw'; built-ins are \['csv', 'mlflow', 'tensorboard', 'wan"),
        ([f"{__name__}:Torns"], "must be importable"),
        (["json:dumps"], "must be a class"),
        ([{"name": "mlflow", "options": {"a": 1}}], "mlflow must have no options, got"),
        ([{"name": "csv", "options": {"a": 1}}], "sink 'csv' options"),
    ],
)
def test_a_sink_that_cannot_be_used_is_refused(sinks, problem):
    with pytest.raises(ConfigurationError, match=problem) as told:
        check_sinks(tracking(*sinks))

    assert 1 == len(str(told.value).splitlines())


@each_row("name", ["tensorboard", "wandb"])
def test_a_package_that_is_missing_is_reported_before_a_run(name):
    if importlib.util.find_spec(name) is not None:
        check_sinks(tracking(name))
        return
    with pytest.raises(ConfigurationError, match=rf"install it with .*\[{name}\]"):
        check_sinks(tracking(name))


@pytest.mark.real
def test_a_sink_whose_package_is_missing_never_ends_a_run(project, capsys):
    opened("tensorboard", "csv").log_step({"train/loss": 0.5}, 1)

    assert [("1", "train/loss")] == rows(project)
    assert len(capsys.readouterr().err.splitlines()) <= 1


def test_a_sink_is_named_once():
    with pytest.raises(ConfigurationError, match=r"must name each sink once, got \['csv', 'csv'\]"):
        tracking("csv", {"name": "csv"})


@each_row("sinks", ["csv", {"csv": {}}, [3], None])
def test_anything_but_a_list_of_names_is_refused(sinks):
    with pytest.raises(ConfigurationError, match=r"tracking\.sinks"):
        TrackingConfiguration.read({"sinks": sinks}, where="tracking")


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
