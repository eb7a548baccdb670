"""What a run came from, at the tracker: one MLflow input per data set, and the parent attacker."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from astra_core.files import file_digest, folder_digest
from tasks.records.models import Parent
from tasks.records.reports import read_report
from tasks.tracking.artifacts import fetch
from tasks.tracking.database.store_check import existing_registry
from tasks.tracking.lineage.provenance import dvc_digests
from tasks.tracking.registry.versions import CHECKPOINT_DIGEST_TAG
from tasks.tracking.store import store_errors

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

# MLflow's limit, in characters.
_DIGEST_LENGTH = 36

LINEAGE = "lineage.json"
"""The file of a run that says what its versions were made from, by name."""
PARENT_TAGS = ("astra.parent", "astra.parent_version")
"""The tags of a version that name its parent; the file has the digests too."""
_DVC_TAG = "dvc.md5"
_PAGE = 200


def lineage_record(client: "MlflowClient", version: "ModelVersion") -> dict[str, str]:
    """What a version was made from, by name: its tags, and what its run keeps.

    A version that was registered before this file existed has all of it in its tags.
    """
    tags = dict(version.tags)
    run_id = str(version.run_id)
    if LINEAGE not in {file.path for file in client.list_artifacts(run_id)}:
        return tags
    with fetch(client, run_id, LINEAGE) as file:
        return {**read_report(file), **tags}


def log_inputs(client: "MlflowClient", run_id: str, datasets: Mapping[str, Path]) -> None:
    """Records each existing data set as an input of the run; a repetition changes nothing.

    Our own digest is always there. DVC's is a tag, because its lock file may be missing, or may not
    yet name the inputs of the stage that is running.

    ``datasets``: files or folders by their role, such as ``prompts``.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag

    known = dvc_digests()
    inputs = []
    for part, path in datasets.items():
        if not path.exists():
            continue
        dataset = Dataset(
            name=part,
            digest=data_digest(path),
            source_type="local",
            source=json.dumps({"uri": path.as_posix()}),
            profile=json.dumps({"num_rows": _num_rows(path)}),
        )
        tags = {"mlflow.data.context": part, _DVC_TAG: known.get(path.as_posix())}
        present = [InputTag(key, value) for key, value in tags.items() if value is not None]
        inputs.append(DatasetInput(dataset, present))
    client.log_inputs(run_id, datasets=inputs)


def digests_of_versions() -> frozenset[str]:
    """DVC's digests of the data that the registered versions came from."""
    client = existing_registry()
    if client is None:
        return frozenset()
    with store_errors():
        ids = {str(version.run_id) for version in every_version(client) if version.run_id}
        inputs = [client.get_run(run_id).inputs for run_id in ids]
        tags = [tag for own in inputs if own for each in own.dataset_inputs for tag in each.tags]
        return frozenset(tag.value for tag in tags if tag.key == _DVC_TAG)


def every_version(client: "MlflowClient", wanted: str | None = None) -> Iterator["ModelVersion"]:
    """The versions of every registered model, or those that MLflow's filter wants."""
    token: str | None = None
    while True:
        page = client.search_model_versions(wanted, max_results=_PAGE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def log_parent(client: "MlflowClient", run_id: str, parent: Parent | None) -> None:
    """Records the attacker that a run began from: as tags, and its model as an input of the run."""
    if parent is None:
        return
    from mlflow.entities import LoggedModelInput

    run = client.get_run(run_id)
    for name, value in parent.tags().items():
        if run.data.tags.get(name) != value:
            client.set_tag(run_id, name, value)
    known = {each.model_id for each in run.inputs.model_inputs} if run.inputs else set()
    model_id = _model_of(client, parent)
    if model_id is not None and model_id not in known:
        client.log_inputs(run_id, models=[LoggedModelInput(model_id)])


def _model_of(client: "MlflowClient", parent: Parent) -> str | None:
    """The logged model with the parent's weights among the outputs of its run.

    It is None if the model was deleted, or is in another store; the tags still name the parent.
    """
    from mlflow.exceptions import MlflowException

    if parent.run_id is None:
        return None
    try:
        outputs = client.get_run(parent.run_id).outputs
        made = outputs.model_outputs if outputs else []
        models = [client.get_logged_model(each.model_id) for each in made]
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None
    same = [model for model in models if model.tags.get(CHECKPOINT_DIGEST_TAG) == parent.digest]
    return str(same[0].model_id) if same else None


def data_digest(path: Path) -> str:
    """The digest of a file or a folder, as long as MLflow keeps it."""
    return (folder_digest(path) if path.is_dir() else file_digest(path))[:_DIGEST_LENGTH]


def _num_rows(path: Path) -> int | None:
    """Rows of all tables in a folder, read from their footers."""
    import pyarrow.parquet as pq

    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    tables = [file for file in files if file.suffix == ".parquet"]
    return sum(pq.read_metadata(file).num_rows for file in tables) if tables else None
