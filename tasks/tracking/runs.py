"""Experiment tracking: one MLflow run per run key, each step once, without stopping training.

The default store is SQLite beside params.yaml, by absolute path: ``dvc exp run --temp`` works in a
folder that is deleted afterwards. All calls name a client and a run id, because the "active run" of
MLflow belongs to one thread and ends with one process.
"""

import os
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from tasks.machine.console import complain
from tasks.tracking.lineage.provenance import code_changes, provenance
from tasks.tracking.store import connect, experiment_id, one_line, tracking_failures, tracking_uri
from tasks.tracking.values import MAX_TAG, MAX_VALUE, clean_key, cut, finite_numbers, flatten

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

RUN_KEY_TAG = "astra.run_key"
CHANGES = "code/changes.diff"
"""The file of a run whose code was not committed."""
ENGINE_TAG = "astra.engine"
"""The tag with the plan by which a run's models were run, in one line."""
PARENT_TAG = "mlflow.parentRunId"
"""The tag by which MLflow's pages nest a run in another."""
PARENT_VARIABLE = "ASTRA_PARENT_RUN"
"""The variable with the MLflow run in which those of a process are nested."""
Status = Literal["FINISHED", "FAILED", "KILLED"]

_FLUSH_STEPS = 50
_FLUSH_SECONDS = 5.0
# Limits in MLflow's validation: metrics per batch, parameters per batch.
_MAX_METRICS = 1000
_MAX_PARAMS = 100


class RunLog:
    """The log of one run; each metric of each step is sent at most once.

    Steps are collected and sent together. After a failure the rest is kept until ``finish``, which
    tries once more; ``sync_steps`` later adds what is still missing, from the file of steps.
    """

    def __init__(
        self,
        client: "MlflowClient | None",
        run_id: str | None,
        *,
        sent: Iterable[tuple[str, int]] = (),
        flush_seconds: float = _FLUSH_SECONDS,
    ) -> None:
        self.run_id = run_id
        self._client = client
        self._seen = set(sent)
        self._waiting: list[Metric] = []
        self._steps_waiting = 0
        self._last_flush = time.monotonic()
        self._flush_seconds = flush_seconds
        self._failed = False
        self._monitor: Any = None

    def log_step(self, metrics: Mapping[str, Any], step: int) -> None:
        """Keeps one step's finite numbers named ``area/name``, and sends them when it is time."""
        if self._client is None:
            return
        self._keep(metrics, step)
        self._steps_waiting += 1
        late = time.monotonic() - self._last_flush >= self._flush_seconds
        if late or self._steps_waiting >= _FLUSH_STEPS:
            self.flush()

    def flush(self) -> None:
        """Sends what is kept; only the first failure prints a line."""
        if self._client is None or self._failed:
            return
        try:
            self.send()
        except tracking_failures() as error:
            self._fail(error)

    def watch_machine(self) -> None:
        """Also samples processor, memory, disk, network and GPU from now until the run ends.

        MLflow samples every ten seconds; ``MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL`` changes that.
        """
        if self.run_id is None:
            return
        from mlflow.system_metrics import system_metrics_monitor as mlflows

        make: Any = mlflows.SystemMetricsMonitor
        # A killed run is resumed; its samples are numbered from the last one on.
        self._monitor = make(self.run_id, resume_logging=True, tracking_uri=tracking_uri())
        self._monitor.start()

    def finish(self, status: Status = "FINISHED") -> None:
        """Sends what is kept and records how the run ended."""
        if self._client is None or self.run_id is None:
            return
        if self._monitor is not None:
            self._monitor.finish()
        try:
            self.send()
            self._client.set_terminated(self.run_id, status)
        except tracking_failures() as error:
            self._fail(error)

    def send(self) -> None:
        """Sends what is kept. Raises one of ``tracking_failures``; what was not sent stays kept."""
        if self._client is None or self.run_id is None:
            return
        while self._waiting:
            self._client.log_batch(self.run_id, metrics=self._waiting[:_MAX_METRICS])
            del self._waiting[:_MAX_METRICS]
        self._steps_waiting = 0
        self._last_flush = time.monotonic()

    def _keep(self, metrics: Mapping[Any, Any], step: int) -> int:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        num_before = len(self._waiting)
        for name, value in finite_numbers(metrics).items():
            # Counters beside the metrics, such as the step itself, are not curves.
            if "/" in name and (name, step) not in self._seen:
                self._seen.add((name, step))
                self._waiting.append(Metric(name, value, now, step))
        return len(self._waiting) - num_before

    def _fail(self, error: Exception) -> None:
        if not self._failed:
            _warn(error)
        self._failed = True


def open_run(
    run_key: str,
    *,
    experiment: str,
    params: Mapping[str, Any] | BaseModel,
    tags: Mapping[str, str] | None = None,
) -> RunLog:
    """The log of the run with this key, created if there is none; a killed run is resumed.

    If the tracker cannot be reached, one warning is printed, and the returned log does nothing.

    ``params``: sections by name; recorded flat, as ``training.algorithm.name``.
    """
    try:
        client = connect()
        run = find_run(client, run_key, experiment=experiment)
        if run is None:
            run = create_run(client, run_key, experiment=experiment, tags=tags)
        elif run.info.status != "RUNNING":
            client.update_run(run.info.run_id, status="RUNNING")
        add_params(client, run, params)
        return RunLog(client, run.info.run_id, sent=_send_rows(client, run))
    except tracking_failures() as error:
        _warn(error)
        return RunLog(None, None)


def sync_steps(
    run_id: str, rows: Iterable[Mapping[Any, Any]], *, client: "MlflowClient | None" = None
) -> int:
    """The number of metrics that the run lacked and that were added from ``rows``.

    ``rows``: each has a ``step`` and metrics ``area/name``; only finite numbers are used.
    """
    client = client or connect()
    log = RunLog(client, run_id, sent=_send_rows(client, client.get_run(run_id)))
    num_added = sum(log._keep(row, int(row["step"])) for row in rows)  # noqa: SLF001 - same module
    log.send()
    return num_added


def find_run(client: "MlflowClient", run_key: str, *, experiment: str) -> "Run | None":
    """The oldest run tagged with the key, or None."""
    wanted = f"tags.`{RUN_KEY_TAG}` = '{run_key}'"
    runs = client.search_runs(
        [experiment_id(client, experiment)],
        wanted,
        max_results=1,
        order_by=["attributes.start_time ASC"],
    )
    return runs[0] if runs else None


def create_run(
    client: "MlflowClient",
    run_key: str,
    *,
    experiment: str,
    tags: Mapping[str, str] | None = None,
    name: str | None = None,
) -> "Run":
    """A new run; its key is written in the same transaction, so that every run has one."""
    every_tag = provenance() | _parent() | dict(tags or {}) | {RUN_KEY_TAG: run_key}
    run = client.create_run(
        experiment_id(client, experiment),
        tags={key: cut(value, MAX_TAG) for key, value in every_tag.items()},
        run_name=name or run_key[:12],
    )
    if every_tag.get("git.dirty") == "true":
        client.log_text(run.info.run_id, code_changes(), CHANGES)
    return run


def _parent() -> dict[str, str]:
    """The tag that nests a run in its sweep's run, which the environment names."""
    parent = os.environ.get(PARENT_VARIABLE)
    return {PARENT_TAG: parent} if parent else {}


def add_params(
    client: "MlflowClient", run: "Run", params: Mapping[str, Any] | BaseModel
) -> dict[str, str]:
    """The parameters as recorded; those that a run has already stay, as they cannot be changed."""
    from mlflow.entities import Param

    flat = {clean_key(key): cut(value, MAX_VALUE) for key, value in flatten(params)}
    new = [Param(key, value) for key, value in flat.items() if key not in run.data.params]
    for start in range(0, len(new), _MAX_PARAMS):
        client.log_batch(run.info.run_id, params=new[start : start + _MAX_PARAMS])
    return flat


def _send_rows(client: "MlflowClient", run: "Run") -> set[tuple[str, int]]:
    run_id = run.info.run_id
    return {
        (name, metric.step)
        for name in run.data.metrics
        for metric in client.get_metric_history(run_id, name)
    }


def _warn(error: Exception) -> None:
    complain(
        f"warning: tracking is off, the run goes on ({one_line(error)}); "
        "the registration stage adds what is missing"
    )
