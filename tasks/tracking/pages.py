"""Addresses of MLflow's pages: the classic page of runs, and the files of a run.

In MLflow 3 the first page of an experiment shows traces of language models; the page with runs,
charts and columns has another address.
"""

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from astra_core.files import read_json
from tasks.machine.ports import MLFLOW_PORT, MLFLOW_SERVER, SERVICES
from tasks.tracking.store import project_root

if TYPE_CHECKING:
    from mlflow import MlflowClient

DECISION = "decision"
"""The tag of a run with what the gate decided about its version."""
_VIEW = "astra"
_COLUMNS = (
    *("metrics.`final/attack_success_rate`", "metrics.`final/lift`", "metrics.`final/kl_nats`"),
    *("metrics.`final/unique_attacks`", f"tags.`{DECISION}`"),
)
_SECTION = "compare"
_BARS = ("final/attack_success_rate", "final/lift", "final/unique_attacks")
_LINES = ("eval/attack_success_rate", "eval/reward_mean", "eval/kl_nats", "train/loss")


def pages_of(tracking_uri: str) -> str:
    """The address of a tracking server for readers; of a store here, that of ``astra ui``."""
    parts = urlsplit(tracking_uri)
    if parts.scheme not in {"http", "https"}:
        return served_pages()
    # Readers of the page log in with their own account.
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


def served_pages() -> str:
    """Where ``astra ui`` serves MLflow's pages of this project, or would serve them."""
    try:
        entries = read_json(project_root() / SERVICES)
        return next(str(own["url"]) for own in entries if own["name"] == MLFLOW_SERVER)
    except (OSError, ValueError, TypeError, KeyError, RecursionError, StopIteration):
        return f"http://127.0.0.1:{MLFLOW_PORT}"


def runs_page(experiment_id: str, *, server: str = "") -> str:
    """The address of an experiment's runs.

    ``server``: such as ``http://127.0.0.1:5000``; without it the address is relative.
    """
    view = f"workflowType=machine_learning&viewStateShareKey={_VIEW}"
    return f"{server}/#/experiments/{experiment_id}/runs?{view}"


def run_page(experiment_id: str, run_id: str, *, artifact: str = "", server: str = "") -> str:
    """The address of a run, or of a file that it keeps.

    ``artifact``: path of the file; empty for the run itself.
    """
    place = f"/artifacts/{artifact}" if artifact else ""
    return f"{server}/#/experiments/{experiment_id}/runs/{run_id}{place}"


def share_view(client: "MlflowClient", experiment_id: str) -> None:
    """Keeps at the experiment the columns and charts of its page, which the link opens."""
    view = {
        "selectedColumns": [*_COLUMNS],
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "compareRunCharts": [
            *(_chart("BAR", name, metricKey=name) for name in _BARS),
            _chart("SCATTER", "success by KL", xaxis=_axis("final/kl_nats"), yaxis=_axis(_BARS[0])),
            *(_chart("LINE", n, metricKey=n, selectedMetricKeys=[n]) for n in _LINES),
        ],
        "isAccordionReordered": True,
        "compareRunSections": [
            {"uuid": _SECTION, "name": "Compare", "display": True, "isReordered": True}
        ],
    }
    client.set_experiment_tag(experiment_id, f"mlflow.sharedViewState.{_VIEW}", json.dumps(view))


def _chart(kind: str, name: str, **own: Any) -> dict[str, Any]:
    """A chart of MLflow's page of runs, which draws those runs that are ticked or shown."""
    shown = {"metricSectionId": _SECTION, "runsCountToCompare": 20, "lineSmoothness": 0}
    return {"uuid": name, "type": kind} | shown | own


def _axis(name: str) -> dict[str, str]:
    return {"key": name, "type": "METRIC"}
