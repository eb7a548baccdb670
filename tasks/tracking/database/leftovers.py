"""Folders of ``runs/`` that nothing needs any more, for ``astra gc``.

A folder holds the checkpoints of one training. It is kept while a version with an alias (champion,
previous or candidate) or the training in ``reports/`` came from it, and for some days after the
last write, because a stopped run resumes from it.
"""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astra_core.files import read_json
from tasks.records.training import TRAINING
from tasks.tracking.database.store_check import existing_registry
from tasks.tracking.registry.registered import aliases_in
from tasks.tracking.runs import RUN_KEY_TAG
from tasks.tracking.store import store_errors

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

RUNS = Path("runs")
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Leftover:
    """One folder that can be removed."""

    path: Path
    num_bytes: int
    days: float

    def line(self) -> str:
        """For a person."""
        return f"{self.path.as_posix():<24}{self.num_bytes / 2**20:9.1f} MiB, {self.days:.0f} days"

    def record(self) -> dict[str, Any]:
        """As JSON."""
        days = round(self.days, 2)
        return {"path": self.path.as_posix(), "num_bytes": self.num_bytes, "days": days}


def leftovers(model_name: str, *also: Path, min_days: float) -> list[Leftover]:
    """The folders that can be removed, the oldest first; removes nothing.

    ``also``: folders beside those of trainings whose content can be made again.

    Raises TrackingError if the registry cannot be read, so what it needs is unknown.
    """
    needed = needed_keys(model_name) | _key_here(RUNS)
    found = [_measure(path) for path in (*sorted(RUNS.glob("*")), *also) if path.is_dir()]
    free = [
        each
        for each in found
        if each.days >= min_days and not any(key.startswith(each.path.name) for key in needed)
    ]
    return sorted(free, key=lambda each: -each.days)


def remove(found: list[Leftover]) -> None:
    """Removes the folders."""
    for each in found:
        shutil.rmtree(each.path)


def needed_keys(model_name: str) -> frozenset[str]:
    """Run keys of the versions that have an alias.

    Raises TrackingError if the registry, or the run of one of them, cannot be read.
    """
    client = existing_registry()
    if client is None:
        return frozenset()
    with store_errors():
        versions = set(aliases_in(client, model_name).values())
        keys = [_run_key(client, client.get_model_version(model_name, one)) for one in versions]
    return frozenset(key for key in keys if key is not None)


def _key_here(runs: Path) -> frozenset[str]:
    """The run key of the training whose report is beside ``runs``."""
    try:
        return frozenset({str(read_json(runs.parent / TRAINING)["run_key"])})
    except (OSError, ValueError, LookupError, TypeError):
        return frozenset()


def _run_key(client: "MlflowClient", version: "ModelVersion") -> str | None:
    """The run key of a version's training: a tag of its run, in older registries of the version."""
    own = version.tags.get(RUN_KEY_TAG)
    if own is not None or not version.run_id:
        return own
    return client.get_run(version.run_id).data.tags.get(RUN_KEY_TAG)


def _measure(folder: Path) -> Leftover:
    states = [path.lstat() for path in (folder, *folder.rglob("*"))]
    last = max(state.st_mtime for state in states)
    return Leftover(
        folder, sum(state.st_size for state in states), max(0.0, (time.time() - last) / _DAY_S)
    )
