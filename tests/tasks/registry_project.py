"""A project's folder with a migrated, empty MLflow store: what the tracking and registry tests share."""

import functools
import tempfile
from pathlib import Path

RUN_KEY = "5f3a" * 16


@functools.cache
def _migrated_database() -> bytes:
    """An empty store; making its tables takes two seconds, so that is done once per process."""
    from mlflow import MlflowClient

    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "mlflow.db"
        MlflowClient(f"sqlite:///{database}").search_experiments()
        return database.read_bytes()


def enter_project(folder, monkeypatch):
    """Makes ``folder`` the working folder, with an empty store and nothing of this machine's."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (folder / "mlflow.db").write_bytes(_migrated_database())
    return folder
