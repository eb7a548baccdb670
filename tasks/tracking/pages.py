"""Addresses in MLflow's pages: the classic page of runs, and what a run keeps.

The first page of an experiment in MLflow 3 is about traces of language models; the page with runs,
charts and columns is another.
"""


def runs_page(experiment_id: str, *, server: str = "") -> str:
    """The address of an experiment's runs.

    Args:
        experiment_id: Of the experiment.
        server: Such as ``http://127.0.0.1:5000``; without one the address is of a page there.
    """
    return f"{server}/#/experiments/{experiment_id}/runs?workflowType=machine_learning"


def run_page(experiment_id: str, run_id: str, *, artifact: str = "", server: str = "") -> str:
    """The address of a run, or of a file that it keeps.

    Args:
        experiment_id: Of its experiment.
        run_id: Of the run.
        artifact: Path of the file; empty for the run itself.
        server: As in ``runs_page``.
    """
    place = f"/artifacts/{artifact}" if artifact else ""
    return f"{server}/#/experiments/{experiment_id}/runs/{run_id}{place}"
