"""Runs and models that were deleted on MLflow's pages but still take space, for ``astra gc``.

It works like ``mlflow gc``, but keeps what a registered version came from or serves.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tasks.tracking.database.store_check import check_store, has_store
from tasks.tracking.store import connect, store_errors, tracking_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

_DAY_MS = 86_400_000
_PAGE = 200


@dataclass(frozen=True, slots=True)
class DeletedRuns:
    """What can be removed from MLflow's store.

    Attributes:
        runs: Ids of deleted runs.
        models: Ids of deleted logged models.
        num_bytes: The size of their files on this machine.
        num_kept: Deleted runs and models that a registered version needs.
        kept_for: Why the store is left alone; empty where it is not.
    """

    runs: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    num_bytes: int = 0
    num_kept: int = 0
    kept_for: str = ""

    def line(self) -> str:
        """For a person."""
        if self.kept_for:
            return f"{'MLflow':<24}is left alone: {self.kept_for}"
        kept = f"; {self.num_kept} deleted stay for a version" if self.num_kept else ""
        what = f"{len(self.runs)} deleted runs, {len(self.models)} deleted models{kept}"
        return f"{'MLflow':<24}{self.num_bytes / 2**20:9.1f} MiB, {what}"

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "runs": list(self.runs),
            "models": list(self.models),
            "num_bytes": self.num_bytes,
            "num_kept": self.num_kept,
            "kept_for": self.kept_for,
        }

    def remove(self) -> None:
        """Removes them, files first: a row without files is found again, files without one not.

        Raises:
            TrackingError: The store cannot be written.
        """
        if not self.runs and not self.models:
            return
        with store_errors():
            connect()
            store = _store()
            for run_id in self.runs:
                _remove_files(store.get_run(run_id).info.artifact_uri)
                store._hard_delete_run(run_id)  # noqa: SLF001 - as `mlflow gc` does
            for model_id in self.models:
                _remove_files(_place_of(store, model_id))
                store._hard_delete_logged_model(model_id)  # noqa: SLF001 - as `mlflow gc` does


def deleted_runs(*, min_days: float) -> DeletedRuns:
    """What can be removed from the store; removes nothing.

    Args:
        min_days: Items deleted less than this ago stay, because they can be restored.

    Raises:
        TrackingError: The store cannot be read, so what versions need is unknown.
    """
    if tracking_uri().startswith(("http://", "https://")):
        return DeletedRuns(kept_for="its server's operator runs 'mlflow gc' there")
    check_store()
    if not has_store():
        return DeletedRuns()
    with store_errors():
        versions = every_version(connect())
        store = _store()
        age = int(min_days * _DAY_MS)
        runs = set(store._get_deleted_runs(older_than=age))  # noqa: SLF001 - as `mlflow gc` does
        models = set(store._get_deleted_logged_models(older_than=age))  # noqa: SLF001 - the same
        needed_runs = {str(version.run_id) for version in versions}
        # A store in a database names a version's model only by its place.
        sources = {str(version.source).removeprefix("models:/") for version in versions}
        needed_models = {one for one in models if {one, _place_of(store, one)} & sources}
        free_runs = sorted(runs - needed_runs)
        free_models = sorted(models - needed_models)
        places = [store.get_run(run_id).info.artifact_uri for run_id in free_runs]
        places += [_place_of(store, model_id) for model_id in free_models]
        return DeletedRuns(
            tuple(free_runs),
            tuple(free_models),
            sum(_num_bytes(place) for place in places),
            len(runs & needed_runs) + len(models & needed_models),
        )


def digests_of_versions() -> frozenset[str]:
    """DVC's digests of the data that the registered versions came from.

    Raises:
        TrackingError: The store, or the run of a version, cannot be read.
    """
    check_store()
    if not has_store():
        return frozenset()
    with store_errors():
        client = connect()
        ids = {str(version.run_id) for version in every_version(client) if version.run_id}
        inputs = [client.get_run(run_id).inputs for run_id in ids]
        tags = [tag for own in inputs if own for each in own.dataset_inputs for tag in each.tags]
        return frozenset(tag.value for tag in tags if tag.key == "dvc.md5")


def every_version(client: "MlflowClient") -> list["ModelVersion"]:
    """The versions of every registered model."""
    found: list[ModelVersion] = []
    token: str | None = None
    while True:
        page = client.search_model_versions(max_results=_PAGE, page_token=token)
        found += page
        token = page.token
        if not token:
            return found


def _store() -> Any:
    """The database behind the client: only it can remove something for good."""
    from mlflow.tracking._tracking_service import utils

    stores: Any = utils
    return stores._get_store(tracking_uri())  # noqa: SLF001 - as `mlflow gc` does


def _place_of(store: Any, model_id: str) -> str:
    return str(store.get_logged_model(model_id, allow_deleted=True).artifact_location)


def _remove_files(place: str) -> None:
    from mlflow.store.artifact import artifact_repository_registry as places

    repository: Any = places.get_artifact_repository(place)
    repository.delete_artifacts()


def _num_bytes(place: str) -> int:
    """The size of the files in a local folder; 0 for any other address."""
    parts = urlsplit(place)
    if parts.scheme not in {"", "file"}:
        return 0
    return sum(path.stat().st_size for path in Path(parts.path).rglob("*") if path.is_file())
