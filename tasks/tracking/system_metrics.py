"""The machine's load beside the figures of a training: MLflow's system metrics."""

from collections.abc import Mapping
from typing import Any

from tasks.tracking.runs import RunLog, Status


class MonitoredLog:
    """A run's log that also samples processor, memory, disk, network and GPU until it ends.

    MLflow samples every ten seconds; ``MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL`` changes that.
    """

    def __init__(self, log: RunLog, *, tracking_uri: str) -> None:
        self._log = log
        self._monitor = _monitor(log.run_id, tracking_uri) if log.run_id else None
        if self._monitor is not None:
            self._monitor.start()

    def log_step(self, figures: Mapping[str, Any], step: int) -> None:
        """Records what is new of one step."""
        self._log.log_step(figures, step)

    def finish(self, status: Status = "FINISHED") -> None:
        """Stops sampling, then ends the record."""
        if self._monitor is not None:
            self._monitor.finish()
        self._log.finish(status)


def _monitor(run_id: str, tracking_uri: str) -> Any:
    from mlflow.system_metrics import system_metrics_monitor as mlflows

    monitors: Any = mlflows
    # A killed run is resumed; its samples are numbered from the last one on.
    return monitors.SystemMetricsMonitor(run_id, resume_logging=True, tracking_uri=tracking_uri)
