"""Addresses of MLflow's pages: the classic page of runs, and the files of a run.

In MLflow 3 the first page of an experiment shows traces of language models; the page with runs,
charts and columns has another address.
"""


def runs_page(experiment_id: str, *, server: str = "") -> str:
    """The address of an experiment's runs.

    Args:
        experiment_id: The experiment's id.
        server: Such as ``http://127.0.0.1:5000``; without it the address is relative.
    """
    return f"{server}/#/experiments/{experiment_id}/runs?workflowType=machine_learning"


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
