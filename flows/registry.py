"""What the flow asks the model registry: is the receipt still true, and who is champion."""

from pathlib import Path

from astra_core.files import read_json
from tasks.tracking_store import connect, tracking_uri

RECEIPT = Path("reports/registration.json")
ALIASES = ("champion", "candidate", "previous")


def is_registered(receipt: Path = RECEIPT) -> bool:
    """Whether the registry has the version that the receipt names.

    DVC sees the receipt, not the registry: after the database was deleted or changed for another,
    registration is up to date for DVC and yet undone.
    """
    from mlflow.exceptions import MlflowException

    if not receipt.is_file():
        return False
    record = read_json(receipt)
    try:
        connect().get_model_version(record["model_name"], str(record["version"]))
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return False
    return True


def alias_versions(model_name: str) -> dict[str, str]:
    """The version behind each alias that is set; asks for no store that was never made."""
    from mlflow.exceptions import MlflowException

    database = tracking_uri().removeprefix("sqlite:///")
    if database != tracking_uri() and not Path(database).is_file():
        return {}

    try:
        model = connect().get_registered_model(model_name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return {}
    return {alias: str(model.aliases[alias]) for alias in ALIASES if alias in model.aliases}
