"""What the flow asks the model registry: is the receipt still true, and who is champion."""

from pathlib import Path
from typing import TYPE_CHECKING

from astra_core.errors import DataError
from tasks.records.receipt import RECEIPT, RegistrationReceipt
from tasks.records.reports import read_record
from tasks.tracking.registered import aliases_in, has_files
from tasks.tracking.store import connect, store_errors
from tasks.tracking.store_check import check_store, has_store

if TYPE_CHECKING:
    from mlflow import MlflowClient

ALIASES = ("champion", "candidate", "previous")


def is_registered(receipt: Path = RECEIPT) -> bool:
    """Whether the registry has the version that the receipt names, with its files.

    DVC sees the receipt, not the registry: after the database or the artifacts were deleted,
    registration is up to date for DVC although it is undone.

    Raises:
        TrackingError: The store is unavailable or damaged.
    """
    try:
        found = read_record(receipt, RegistrationReceipt)
    except DataError:
        return False
    return files_are_there(found.model_name, found.version)


def files_are_there(model_name: str, version: str) -> bool:
    """Whether the registry has the version, and its files are where it says.

    Raises:
        TrackingError: The store is unavailable or damaged.
    """
    with store_errors():
        return has_files(connect(), model_name, version)


def existing_registry() -> "MlflowClient | None":
    """A client of the registry, or nothing where there is none yet; never creates a store.

    Raises:
        TrackingError: The store is unavailable or damaged.
    """
    check_store()
    if not has_store():
        return None
    with store_errors():
        return connect()


def alias_versions(model_name: str) -> dict[str, str]:
    """The version behind each alias that is set; never creates a store.

    Raises:
        TrackingError: The store is unavailable or damaged.
    """
    client = existing_registry()
    if client is None:
        return {}
    with store_errors():
        aliases = aliases_in(client, model_name)
    return {alias: aliases[alias] for alias in ALIASES if alias in aliases}
