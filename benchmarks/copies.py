"""Copies of the project in temporary folders, in which benchmarks run its stages."""

import os
import subprocess
import sys
from pathlib import Path

from tasks.pipeline import workspace

ROOT = Path(__file__).resolve().parent.parent
STAGES = ("prompts", "validation", "models", "rollouts", "training", "evaluation")


def copy_project(folder: Path, *changes: str, preset: str | None = None) -> None:
    """Fills a folder with what stages need.

    Args:
        folder: An existing, empty folder.
        changes: Changes of params.yaml, each as ``key=value``.
        preset: A preset that is laid over params.yaml before them.
    """
    workspace.copy_project(ROOT, folder)
    if changes or preset:
        change_copy(folder, *changes, preset=preset)


def change_copy(folder: Path, *changes: str, preset: str | None = None) -> None:
    """Changes params.yaml of a copy, by ``key=value``, after a preset where one is named."""
    code = (
        "import sys; from flows.settings import change_params; "
        "change_params(sys.argv[2:], preset=sys.argv[1] or None)"
    )
    run_python(folder, "-c", code, preset or "", *changes)


def run_python(folder: Path, *arguments: str) -> str:
    """What this interpreter prints in a copy of the project, with the benchmarks importable."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT))),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "PREFECT_HOME": str(folder / ".prefect"),
        "DVC_SITE_CACHE_DIR": str(folder / ".dvc/site"),
        "ASTRA_PYTHON": sys.executable,
    }
    return subprocess.run(  # noqa: S603 - our own interpreter on our own code
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
