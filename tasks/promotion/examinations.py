"""Examinations in the artifacts of runs: found by evaluation key, made where one is missing."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astra_core.errors import DataError
from astra_core.files import write_json
from tasks.machine.scratch import scratch_folder
from tasks.records.reports import read_report
from tasks.tracking.artifacts import fetched, kept_files
from tasks.tracking.evidence import evaluation_folder, read_table
from tasks.tracking.versions import checkpoint_folder

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

Evaluate = Callable[[Path], "tuple[Mapping[str, Any], pd.DataFrame]"]

TABLE_FILE = "evaluation_prompts.parquet"
REPORT_FILE = "evaluation.json"


def table_of(
    client: "MlflowClient", champion: "ModelVersion", evaluation_key: str, *, evaluate: Evaluate
) -> "pd.DataFrame":
    """The champion's per-prompt table of this examination, made and kept if there is none yet.

    Args:
        client: Of tracker and registry.
        champion: A version.
        evaluation_key: Which examination.
        evaluate: Record and table of the attacker in a folder.

    Raises:
        DataError: The examination that can be made now is another one.
    """
    found = find_examination(client, champion, evaluation_key)
    if found is not None:
        _, table = found
        return table[table["role"] == "attacker"]
    with checkpoint_folder(client, champion) as weights:
        record, table = evaluate(weights)
    if record.get("evaluation_key") != evaluation_key:
        msg = (
            "candidate must be examined as params.yaml says now, got evaluation "
            f"{evaluation_key[:12]} and now {str(record.get('evaluation_key'))[:12]}; "
            "run the stages evaluation and registration"
        )
        raise DataError(msg)
    _keep_examination(client, champion, record=record, table=table)
    return table


def _keep_examination(
    client: "MlflowClient",
    version: "ModelVersion",
    *,
    record: Mapping[str, Any],
    table: "pd.DataFrame",
) -> None:
    with scratch_folder() as folder:
        table.assign(role="attacker").to_parquet(folder / TABLE_FILE, index=False)
        write_json(dict(record), folder / REPORT_FILE)
        # The report last: it is what says that the examination is whole.
        artifacts = evaluation_folder(record["evaluation_key"])
        client.log_artifact(str(version.run_id), str(folder / TABLE_FILE), artifacts)
        client.log_artifact(str(version.run_id), str(folder / REPORT_FILE), artifacts)


def find_examination(
    client: "MlflowClient", version: "ModelVersion", evaluation_key: str
) -> "tuple[dict[str, Any], pd.DataFrame] | None":
    """Report and table of the examination, or None if there is none.

    Raises:
        DataError: They cannot be read.
    """
    place, run_id = evaluation_folder(evaluation_key), str(version.run_id)
    if not {TABLE_FILE, REPORT_FILE} <= kept_files(client, run_id, place):
        return None
    with fetched(client, run_id, place) as folder:
        return read_report(folder / REPORT_FILE), read_table(folder / TABLE_FILE)
