"""Whether the store of runs and versions can be read, checked without creating or changing it."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from astra_core.errors import DataError
from tasks.records.receipt import RECEIPT, RegistrationReceipt
from tasks.records.reports import read_record
from tasks.tracking.errors import DamagedStoreError
from tasks.tracking.store import connect, sqlite_file, store_errors, told_address, tracking_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient


def has_store() -> bool:
    """Whether there is a store; a server is assumed to have one."""
    database = sqlite_file(tracking_uri())
    return database is None or (database.is_file() and database.stat().st_size > 0)


def existing_registry() -> "MlflowClient | None":
    """A client of the registry, or None if there is none yet; never creates a store.

    Raises TrackingError if the store is unavailable or damaged.
    """
    check_store()
    if not has_store():
        return None
    with store_errors():
        return connect()


def check_store() -> None:
    """Checks that the store can be read, or if there is none yet.

    Raises TrackingError if it is unreachable, damaged or denies access; DiskFullError if its disk
    is full.
    """
    database = sqlite_file(tracking_uri())
    with store_errors():
        if database is None:
            connect()
        elif has_store():
            address = f"{database.absolute().as_uri()}?mode=rw"
            with closing(sqlite3.connect(address, uri=True)) as connection:
                found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise sqlite3.DatabaseError(found)
        else:
            _require_none(database)


def _require_none(database: Path) -> None:
    """Raises DamagedStoreError unless there is no sign that a database should exist."""
    if _is_named_by(RECEIPT):
        msg = (
            f"{database} must hold the version that {RECEIPT} names, got no such file; "
            "restore it, or 'astra run' registers again"
        )
        raise DamagedStoreError(msg)
    if not database.absolute().parent.is_dir() or database.is_dir():
        msg = f"{database} must be a file in a folder, got neither; see MLFLOW_TRACKING_URI"
        raise DamagedStoreError(msg)


def _is_named_by(receipt: Path) -> bool:
    try:
        named = read_record(receipt, RegistrationReceipt).tracking_uri
    except DataError:
        return False
    return told_address(named) == told_address(tracking_uri())
