"""What the registry has about a model, which may be nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from tasks.tracking.store import connect, store_errors

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

Found = TypeVar("Found")

# MLflow reports the second if no version has the alias.
_ABSENT = frozenset({"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"})


def version_behind(client: "MlflowClient", name: str, alias: str) -> "ModelVersion | None":
    """The version that has the alias, if there is one."""
    return _if_there(client.get_model_version_by_alias, name, alias)


def version_numbered(client: "MlflowClient", name: str, version: str) -> "ModelVersion | None":
    """The version with this number, if there is one."""
    return _if_there(client.get_model_version, name, version)


def has_version(client: "MlflowClient", name: str, version: str) -> bool:
    """Whether the registry has this version."""
    return version_numbered(client, name, version) is not None


def has_files(client: "MlflowClient", name: str, version: str) -> bool:
    """Whether the version exists with its files; remote files are assumed to exist."""
    address = _if_there(client.get_model_version_download_uri, name, version)
    if address is None:
        return False
    return bool(urlsplit(address).scheme) or Path(address).is_dir()


def lost_versions() -> list[tuple[str, str, str]]:
    """Name, version and alias of each version with an alias whose files are gone."""
    with store_errors():
        client = connect()
        models = client.search_registered_models()
        return [
            (str(model.name), str(version), alias)
            for model in models
            for alias, version in sorted(aliases_in(client, model.name).items())
            if not has_files(client, model.name, str(version))
        ]


def aliases_if_there(client: "MlflowClient", name: str) -> dict[str, str] | None:
    """Version by alias; None if there is no such model."""
    model = _if_there(client.get_registered_model, name)
    if model is None:
        return None
    return {alias: str(version) for alias, version in dict(model.aliases).items()}


def aliases_in(client: "MlflowClient", name: str) -> dict[str, str]:
    """Version by alias; empty if there is no such model."""
    return aliases_if_there(client, name) or {}


def _if_there(ask: Callable[..., Found], *names: str) -> Found | None:
    from mlflow.exceptions import MlflowException

    try:
        return ask(*names)
    except MlflowException as error:
        if error.error_code not in _ABSENT:
            raise
        return None
