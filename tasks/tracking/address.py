"""Checks whether ``MLFLOW_TRACKING_URI`` can name a store, before anything connects."""

import os
from pathlib import Path
from urllib.parse import urlsplit

from astra_core.errors.exception_text import excerpt
from astra_core.paths import kind_of
from tasks.tracking.errors import DamagedStoreError

_SERVERS = ("http", "https")
_HOSTED = ("databricks", "databricks-uc", "uc")
_WAY_OUT = "unset it to record in the project's own mlflow.db"


def check_tracking_uri(uri: str) -> None:
    """Checks that the address is that of a server, or of a database whose driver is installed."""
    scheme, colon, _ = uri.partition(":")
    if scheme in _HOSTED:
        return
    if scheme in _SERVERS:
        _check_server(uri)
    elif scheme.partition("+")[0] == "sqlite":
        _check_file(uri)
    elif colon and "://" in uri and scheme != "file":
        _check_driver(uri)
    elif os.environ.get("MLFLOW_ALLOW_FILE_STORE", "").lower() != "true":
        # MLflow itself refuses folders, in five lines.
        _refuse(uri, "the address of a server or a database")


def _check_server(uri: str) -> None:
    try:
        parts = urlsplit(uri)
        is_address = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or not uri.isascii() or any(letter.isspace() for letter in uri):
        _refuse(uri, "an address such as http://127.0.0.1:5000")


def _check_file(uri: str) -> None:
    name = uri.partition(":///")[2].partition("?")[0]
    if not name:
        _refuse(uri, "the path of a file, such as sqlite:////home/me/mlflow.db")
    if kind_of(name) not in {"a file", "nothing there"}:
        _refuse(uri, f"the path of a file, not of {kind_of(name)}")
    folder = Path(name).absolute().parent
    while kind_of(folder) == "nothing there":
        folder = folder.parent
    if kind_of(folder) != "a folder":
        _refuse(uri, f"a path in a folder, not {kind_of(folder)}")


def _check_driver(uri: str) -> None:
    from sqlalchemy import make_url
    from sqlalchemy.exc import SQLAlchemyError

    try:
        make_url(uri).get_dialect().import_dbapi()
    except (SQLAlchemyError, ValueError):
        _refuse(uri, "sqlite, postgresql, mysql, mssql, http or https")
    except ImportError as error:
        msg = (
            f"MLFLOW_TRACKING_URI must name a database whose driver is installed, got "
            f"{excerpt(uri)} and no {error.name}; install it, or {_WAY_OUT}"
        )
        raise DamagedStoreError(msg) from None


def _refuse(uri: str, rule: str) -> None:
    shown = excerpt(uri)
    msg = f"MLFLOW_TRACKING_URI must name {rule}, got {shown}; {_WAY_OUT}"
    raise DamagedStoreError(msg)
