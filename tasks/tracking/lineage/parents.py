"""A version of the registry from which the next attacker begins: found, copied and checked."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from astra_core.models.folders import attacker_digest, require_folder
from tasks.records.models import Parent
from tasks.tracking.database.store_check import existing_registry
from tasks.tracking.errors import TrackingError
from tasks.tracking.registry.registered import aliases_in, has_version
from tasks.tracking.registry.versions import CHECKPOINT_DIGEST_TAG, checkpoint_folder
from tasks.tracking.store import connect, store_errors

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

_WAY_OUT = "'astra history' lists versions; a folder must be there to be named"


def version_number(name: str, wanted: str) -> str | None:
    """The number of an existing version, or None; never creates a store."""
    client = existing_registry()
    if client is None:
        return None
    with store_errors():
        if wanted.isdigit():
            return wanted if has_version(client, name, wanted) else None
        return aliases_in(client, name).get(wanted)


def copy_version(name: str, wanted: str, folder: Path) -> Parent:
    """Copies the attacker of a version into ``folder``; an alias is resolved once, here.

    ``folder``: the place for its Hugging Face folder; an existing one is of the same version.

    Raises TrackingError if there is no such version, it is incomplete, or the store cannot be read.
    """
    number = _number(name, wanted)
    with store_errors():
        client = connect()
        version = client.get_model_version(name, number)
        tags = _tags(client, version)
        with checkpoint_folder(client, version) as source:
            require_folder(source)
            shutil.copytree(source, folder, dirs_exist_ok=True)
    return Parent(
        digest=attacker_digest(folder),
        run_key=tags.get("astra.run_key"),
        model_name=name,
        version=number,
        alias=None if wanted == number else wanted,
        run_id=version.run_id,
    )


def version_keys(name: str, wanted: str) -> tuple[str, str]:
    """Digest of the attacker of a version, and the key of the training that made it.

    Raises TrackingError if there is no such version, it has neither, or the store cannot be read.
    """
    number = _number(name, wanted)
    with store_errors():
        client = connect()
        tags = _tags(client, client.get_model_version(name, number))
    keys = tags.get(CHECKPOINT_DIGEST_TAG, ""), tags.get("astra.run_key", "")
    if not any(keys):
        msg = (
            f"version {number} of '{name}' must have the tag {CHECKPOINT_DIGEST_TAG} or "
            "astra.run_key, got neither; 'astra run' registers with both"
        )
        raise TrackingError(msg)
    return keys


def _number(name: str, wanted: str) -> str:
    number = version_number(name, wanted)
    if number is None:
        msg = (
            f"models: version '{wanted}' of '{name}' must be in the registry, got none; {_WAY_OUT}"
        )
        raise TrackingError(msg)
    return number


def _tags(client: "MlflowClient", version: "ModelVersion") -> dict[str, str]:
    """The tags of a version and its run; older versions have as their own what runs have now."""
    return {**client.get_run(str(version.run_id)).data.tags, **version.tags}
