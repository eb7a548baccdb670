"""What the flow asks the model registry: whether the receipt is still true, and who is champion."""

from pathlib import Path

from astra_core.errors import DataError
from astra_core.files import read_json
from tasks.records.attacker import ATTACKER_FILE
from tasks.records.evaluation import EVALUATION
from tasks.records.receipt import RECEIPT, RegistrationReceipt
from tasks.records.reports import read_record
from tasks.tracking.database.store_check import existing_registry
from tasks.tracking.registry.registered import aliases_in, has_files
from tasks.tracking.store import connect, store_errors

ATTACKER = Path("models/attacker")
ALIASES = ("champion", "candidate", "previous")


LOST = "the registry has lost this version"
UNTOLD = "no receipt here says which version this is"
ANOTHER = "the files here are those of another version"


def is_registered(receipt: Path = RECEIPT) -> bool:
    """Whether the registry has the version in the receipt, and the files here belong to it.

    Raises TrackingError if the store is unavailable or damaged.
    """
    return not why_unregistered(receipt)


def why_unregistered(receipt: Path = RECEIPT) -> str:
    """Why registration must run although DVC finds it up to date; empty if it need not.

    DVC sees neither the registry nor the receipt: the database or the artifacts may be deleted, and
    after a checkout of an earlier lock the files are those of an earlier version.

    Raises TrackingError if the store is unavailable or damaged.
    """
    try:
        found = read_record(receipt, RegistrationReceipt)
    except DataError:
        return UNTOLD  # as after a pull: registration finds the version by its digests
    if not _is_about_the_files(found, receipt.parent):
        return ANOTHER
    return "" if files_are_there(found.model_name, found.version) else LOST


def _is_about_the_files(found: RegistrationReceipt, reports: Path) -> bool:
    """Whether attacker and evaluation beside the receipt are those that were registered."""
    told = {
        found.checkpoint_digest: _value_in(reports.parent / ATTACKER / ATTACKER_FILE, "digest"),
        found.evaluation_key: _value_in(reports / EVALUATION.name, "evaluation_key"),
    }
    return all(own in {None, wanted} for wanted, own in told.items() if wanted)


def _value_in(file: Path, key: str) -> str | None:
    try:
        return str(read_json(file)[key])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def files_are_there(model_name: str, version: str) -> bool:
    """Whether the registry has the version, and the version's files exist.

    Raises TrackingError if the store is unavailable or damaged.
    """
    with store_errors():
        return has_files(connect(), model_name, version)


def alias_versions(model_name: str) -> dict[str, str]:
    """The version behind each alias that is set; never creates a store.

    Raises TrackingError if the store is unavailable or damaged.
    """
    client = existing_registry()
    if client is None:
        return {}
    with store_errors():
        aliases = aliases_in(client, model_name)
    return {alias: aliases[alias] for alias in ALIASES if alias in aliases}
