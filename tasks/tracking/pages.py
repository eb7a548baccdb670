"""Addresses of MLflow's pages: the classic page of runs, and the files of a run.

In MLflow 3 the first page of an experiment shows traces of language models; the page with runs,
charts and columns has another address.
"""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow import MlflowClient

DECISION = "decision"
"""The tag of a run with what the gate decided about its version."""
_VIEW = "astra"
_COLUMNS = (
    *("metrics.`final/attack_success_rate`", "metrics.`final/lift`", "metrics.`final/kl_nats`"),
    *("metrics.`final/unique_attacks`", f"tags.`{DECISION}`"),
)


def runs_page(experiment_id: str, *, server: str = "") -> str:
    """The address of an experiment's runs.

    Args:
        experiment_id: The experiment's id.
        server: Such as ``http://127.0.0.1:5000``; without it the address is relative.
    """
    view = f"workflowType=machine_learning&viewStateShareKey={_VIEW}"
    return f"{server}/#/experiments/{experiment_id}/runs?{view}"


def run_page(experiment_id: str, run_id: str, *, artifact: str = "", server: str = "") -> str:
    """The address of a run, or of a file that it keeps.

    Args:
        experiment_id: The id of its experiment.
        run_id: The run's id.
        artifact: Path of the file; empty for the run itself.
        server: As in ``runs_page``.
    """
    place = f"/artifacts/{artifact}" if artifact else ""
    return f"{server}/#/experiments/{experiment_id}/runs/{run_id}{place}"


def share_view(client: "MlflowClient", experiment_id: str) -> None:
    """Keeps at the experiment which columns the page of runs has; MLflow reads it by the link."""
    view = {
        "selectedColumns": [*_COLUMNS],
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
    }
    client.set_experiment_tag(experiment_id, f"mlflow.sharedViewState.{_VIEW}", json.dumps(view))
