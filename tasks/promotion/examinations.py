"""Examinations in the artifacts of runs, found by their evaluation key."""

from typing import TYPE_CHECKING, Any

from tasks.records.reports import read_report
from tasks.tracking.artifacts import fetch, kept_files
from tasks.tracking.registry.evidence import evaluation_folder, read_table

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

TABLE_FILE = "evaluation_prompts.parquet"
REPORT_FILE = "evaluation.json"


def find_examination(
    client: "MlflowClient", version: "ModelVersion", evaluation_key: str
) -> "tuple[dict[str, Any], pd.DataFrame] | None":
    """Report and table of the examination, or None if there is none."""
    place, run_id = evaluation_folder(evaluation_key), str(version.run_id)
    if not {TABLE_FILE, REPORT_FILE} <= kept_files(client, run_id, place):
        return None
    with fetch(client, run_id, place) as folder:
        return read_report(folder / REPORT_FILE), read_table(folder / TABLE_FILE)
