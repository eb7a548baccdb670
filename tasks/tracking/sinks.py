"""The sinks of ``tracking.sinks``: each gets every figure once, and a failing one ends no run."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from astra_core.config import Choice
from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import error_line
from astra_core.extensions.calls import plugin_call
from astra_core.registry import BUILT_INS, build, find
from astra_parts.sink import Recorder, SinkRun, Status
from tasks.machine.console import complain
from tasks.params.schema import TrackingConfiguration
from tasks.tracking.runs import open_run
from tasks.tracking.store import project_root

MLFLOW = "mlflow"
"""The sink that is not a plug-in: it is also the registry of model versions."""
FOLDER = Path("tracking")
"""The folder in which the other sinks have a folder for each run."""


class Log(Protocol):
    """A record of figures by step."""

    def log_step(self, figures: Mapping[str, Any], step: int) -> None:
        """Records what is new of one step."""

    def finish(self, status: Status = "FINISHED") -> None:
        """Ends the record."""


class Sinks:
    """Several records of one run; one that fails prints a line and is skipped afterwards."""

    def __init__(self, logs: Mapping[str, Log]) -> None:
        self._logs = dict(logs)

    def log_step(self, figures: Mapping[str, Any], step: int) -> None:
        """Records what is new of one step in every record."""
        self._each(lambda log: log.log_step(figures, step))

    def finish(self, status: Status = "FINISHED") -> None:
        """Ends every record."""
        self._each(lambda log: log.finish(status))

    def _each(self, action: Callable[[Log], None]) -> None:
        for name, log in [*self._logs.items()]:
            try:
                with plugin_call("sink", name, "recording"):
                    action(log)
            except Exception as error:  # noqa: BLE001 - a sink may raise anything
                del self._logs[name]
                _warn(name, error)


def open_sinks(
    tracking: TrackingConfiguration,
    run_key: str,
    *,
    experiment: str,
    params: Mapping[str, Any],
    tags: Mapping[str, str],
) -> Sinks:
    """The configured sinks, without those that cannot be opened."""
    logs: dict[str, Log] = {}
    for choice in tracking.sinks:
        try:
            if choice.name == MLFLOW:
                log = open_run(run_key, experiment=experiment, params=params, tags=tags)
                if tracking.system_metrics:
                    log.watch_machine()
                logs[MLFLOW] = log
            else:
                logs[choice.name] = _recorder(choice, run_key, params)
        except Exception as error:  # noqa: BLE001 - a sink may raise anything
            _warn(choice.name, error)
    return Sinks(logs)


def check_sinks(tracking: TrackingConfiguration) -> None:
    """Checks that every sink exists and can be used on this machine.

    Raises ConfigurationError if one is unknown, has a wrong option, or its package is missing;
    PluginError if its own check failed.
    """
    for choice in tracking.sinks:
        if choice.name == MLFLOW:
            if choice.options:
                msg = (
                    f"tracking.sinks: mlflow must have no options, got {sorted(choice.options)}; "
                    "see registration.experiment and MLFLOW_TRACKING_URI"
                )
                raise ConfigurationError(msg)
            continue
        known = [MLFLOW, *BUILT_INS["sink"]]
        if choice.name not in known and ":" not in choice.name:
            # The core's table lacks the pipeline's own sink.
            msg = (
                f"unknown sink '{choice.name}'; built-ins are {sorted(known)}, "
                "or give an import path such as 'plugins.mine:Class'"
            )
            raise ConfigurationError(msg)
        sink = find("sink", choice).plugin
        with plugin_call("sink", choice.name, "check"):
            sink.check()


def _recorder(choice: Choice, run_key: str, params: Mapping[str, Any]) -> Recorder:
    place = re.sub(r"[^\w.-]", "_", choice.name)
    folder = project_root() / FOLDER / place / run_key[:16]
    sink = build("sink", choice, run=SinkRun(run_key, folder, params))
    with plugin_call("sink", choice.name, "recorded_figures"):
        return Recorder(sink)


def _warn(name: str, error: Exception) -> None:
    complain(f"warning: tracking.sinks: {name} is off, the run goes on ({error_line(error)})")
