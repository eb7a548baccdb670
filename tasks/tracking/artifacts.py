"""The files that a run keeps at the tracker, fetched to a temporary place."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.machine.scratch import scratch_folder

if TYPE_CHECKING:
    from mlflow import MlflowClient


def kept_files(client: "MlflowClient", run_id: str, folder: str) -> frozenset[str]:
    """The names of the files in a folder of the run's artifacts."""
    return frozenset(Path(file.path).name for file in client.list_artifacts(run_id, folder))


@contextmanager
def fetch(client: "MlflowClient", run_id: str, place: str) -> Iterator[Path]:
    """Yields a file or a folder of the run's artifacts."""
    import mlflow.artifacts

    # Without a given folder MLflow would make one, even for local files, and leave it behind.
    with scratch_folder() as folder:
        path = mlflow.artifacts.download_artifacts(
            run_id=run_id,
            artifact_path=place,
            dst_path=str(folder),
            tracking_uri=client.tracking_uri,
        )
        yield Path(path)
