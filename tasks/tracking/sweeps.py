"""The MLflow runs of a sweep: one for the sweep, in which the runs of its points are nested.

If the tracker is unreachable, a line is printed and no point is lost.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astra_core.files import write_json, write_text
from tasks.machine.console import complain
from tasks.machine.scratch import scratch_folder
from tasks.params.schema import Params
from tasks.records.evaluation import EvaluationRecord
from tasks.records.training import TrainingRecord
from tasks.tracking.figures import log_figures
from tasks.tracking.registry.evidence import read_table
from tasks.tracking.runs import PARENT_TAG, add_params, create_run, find_run, sync_steps
from tasks.tracking.store import connect, one_line, tracking_failures

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

SWEEP_TAG = "astra.sweep"


def open_sweep(key: str, *, name: str, experiment: str, tags: Mapping[str, str]) -> str | None:
    """The id of the sweep's run, created if there is none; None if the tracker is unreachable."""
    try:
        client, own = connect(), f"sweep-{key}"
        run = find_run(client, own, experiment=experiment)
        if run is None:
            every_tag = {SWEEP_TAG: name, **tags}
            run = create_run(client, own, experiment=experiment, tags=every_tag, name=name)
        elif run.info.status != "RUNNING":
            client.update_run(run.info.run_id, status="RUNNING")
        return str(run.info.run_id)
    except tracking_failures() as error:
        _warn(error)
        return None


def close_sweep(
    run_id: str | None,
    *,
    table: str,
    record: Mapping[str, Any],
    figures: Mapping[str, float | None],
    is_whole: bool,
) -> None:
    """Records a table and figures in the sweep's run, and ends it."""
    if run_id is None:
        return
    try:
        client = connect()
        with scratch_folder() as drafts:
            write_text(table, drafts / "sweep.md")
            write_json(dict(record), drafts / "sweep.json")
            client.log_artifacts(run_id, str(drafts))
        log_figures(client, run_id, figures)
        client.set_terminated(run_id, "FINISHED" if is_whole else "FAILED")
    except tracking_failures() as error:
        _warn(error)


def adopt(
    training: TrainingRecord,
    evaluation: EvaluationRecord,
    *,
    params: Params,
    steps: Path,
    name: str,
    parent: str | None,
) -> str | None:
    """The id of the run of a finished training, completed and nested in the sweep's.

    A training that was restored from a cache has no run here yet, or has its own run, which is
    nested unless it belongs to another sweep.

    ``parent``: the sweep's run; None if the tracker is unreachable.
    """
    if parent is None:
        return None
    try:
        client = connect()
        run = _nested_run(client, training.run_key, params, name=name, parent=parent)
        run_id = str(run.info.run_id)
        add_params(client, run, params)
        rows = read_table(steps, columns=("step",)).to_dict("records")
        sync_steps(run_id, rows, client=client)
        log_figures(client, run_id, evaluation.final_figures(), step=training.optimizer_steps)
        if run.info.status != "FINISHED":
            client.set_terminated(run_id, "FINISHED")
    except tracking_failures() as error:
        _warn(error)
        return None
    return run_id


def _nested_run(
    client: "MlflowClient", run_key: str, params: Params, *, name: str, parent: str
) -> "Run":
    experiment = params.registration.experiment
    run = find_run(client, run_key, experiment=experiment)
    if run is None:
        tags = {PARENT_TAG: parent}
        return create_run(client, run_key, experiment=experiment, tags=tags, name=name)
    if run.data.tags.get(PARENT_TAG, parent) == parent:
        client.set_tag(run.info.run_id, PARENT_TAG, parent)
        client.set_tag(run.info.run_id, "mlflow.runName", name)
    return run


def _warn(error: Exception) -> None:
    complain(f"warning: the sweep is not recorded in MLflow, it goes on ({one_line(error)})")
