"""What the flow asks the model registry: is the receipt still true, and who is champion."""

from collections.abc import Mapping
from pathlib import Path

from astra_core.errors import DataError
from tasks.records.receipt import RECEIPT, RegistrationReceipt
from tasks.records.reports import read_record
from tasks.tracking.store import connect, store_errors
from tasks.tracking.store_check import check_store, has_store

ALIASES = ("champion", "candidate", "previous")


def is_registered(receipt: Path = RECEIPT) -> bool:
    """Whether the registry has the version that the receipt names.

    DVC sees the receipt, not the registry: after the database was deleted or replaced,
    registration is up to date for DVC although it is undone.

    Raises:
        TrackingError: The store is unavailable or damaged.
    """
    from mlflow.exceptions import MlflowException

    try:
        found = read_record(receipt, RegistrationReceipt)
    except DataError:
        return False
    with store_errors():
        try:
            connect().get_model_version(found.model_name, found.version)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return False
    return True


def alias_versions(model_name: str) -> dict[str, str]:
    """The version behind each alias that is set; never creates a store.

    Raises:
        TrackingError: The store is unavailable or damaged.
    """
    from mlflow.exceptions import MlflowException

    check_store()
    if not has_store():
        return {}
    with store_errors():
        try:
            model = connect().get_registered_model(model_name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return {}
        aliases: Mapping[str, object] = model.aliases
    return {alias: str(aliases[alias]) for alias in ALIASES if alias in aliases}
