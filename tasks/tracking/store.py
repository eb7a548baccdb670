"""The store of runs and models: its address, client, experiments, and the server's command."""

import atexit
import fcntl
import logging
import os
import re
import socket
import sqlite3
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from astra_core.errors import AstraError
from astra_core.errors.exception_text import shorten
from astra_core.files import disk_full, is_disk_full
from tasks.machine.memory import is_out_of_memory, out_of_memory
from tasks.machine.ports import MLFLOW_PORT
from tasks.tracking.address import check_tracking_uri
from tasks.tracking.database.creation import make_tables
from tasks.tracking.database.relocation import ARTIFACTS, follow_move
from tasks.tracking.errors import DamagedStoreError, StoreError, TrackingError

if TYPE_CHECKING:
    from mlflow import MlflowClient

_CONNECT_S = 5.0
# SQLite's error while another process writes.
_PASSING = ("is locked", "busy", "timed out", "unique constraint")

_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    # MLflow's own seven doubling waits would delay training by minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    # Its timeout of two minutes before each of them would, too.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


def project_root(folder: Path | None = None) -> Path:
    """The project's own folder, also from a copy that ``dvc exp run`` or a flow works in."""
    folder = (folder or Path.cwd()).absolute()
    parts = folder.parts
    for place in range(len(parts) - 2):
        if parts[place : place + 3] == (".dvc", "tmp", "exps"):
            return Path(*parts[:place])
        if parts[place : place + 2] in {("sweeps", "points"), (".astra", "workspaces")}:
            return Path(*parts[:place])
    return folder


def tracking_uri(root: Path | None = None) -> str:
    """The address of the store: ``MLFLOW_TRACKING_URI``, else SQLite in the project's folder.

    ``root``: the project's folder; the working folder's project by default.
    """
    named = os.environ.get("MLFLOW_TRACKING_URI")
    return named or f"sqlite:///{project_root(root) / 'mlflow.db'}"


def told_address(uri: str, root: Path | None = None) -> str:
    """The store's address for a report: no password, and no absolute path inside the project.

    ``root``: the project's folder; the working folder's project by default.
    """
    database, home = sqlite_file(uri), project_root(root)
    if database is not None and database.is_relative_to(home):
        return f"sqlite:///{database.relative_to(home).as_posix()}"
    return _without_password(uri)


def connect() -> "MlflowClient":
    """A client of tracker and registry, with a store that readers do not block.

    Raises TrackingError if ``MLFLOW_TRACKING_URI`` names no store, sqlite3.Error if the database
    file cannot be opened, OSError if its folder cannot be made.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    uri = tracking_uri()
    check_tracking_uri(uri)
    _require_server(uri)
    database = sqlite_file(uri)
    if database is not None:
        _prepare(database)
    # Once, however often this is called.
    atexit.unregister(_close_stores)
    atexit.register(_close_stores)
    from mlflow import MlflowClient

    # A problem arrives as an exception; the store would also print its traceback.
    logging.getLogger("mlflow").setLevel(logging.CRITICAL)
    # MLflow fails if two processes create its tables at once.
    with alone_with(database):
        if database is not None:
            make_tables(database)
        client = MlflowClient(uri)
        client.search_experiments(max_results=1)
    return client


def _close_stores() -> None:
    """Closes the connections that MLflow keeps for the life of a process.

    The last to close takes the write-ahead log into the database, which is then one file again.
    """
    for name in ("tracking", "model_registry"):
        module = sys.modules.get(f"mlflow.store.{name}.sqlalchemy_store")
        if module is not None:
            for engine in module.SqlAlchemyStore._engine_map.values():  # noqa: SLF001 - no other way
                engine.dispose()


def _prepare(database: Path) -> None:
    """Prepares a database file with a write-ahead log, so that readers do not block writers.

    If it was moved with its project, its artifact paths are updated.
    """
    database.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(database)) as connection:
        # The setting stays in the file; a commit takes half the time.
        connection.execute("PRAGMA journal_mode=WAL")
    follow_move(database)


@contextmanager
def alone_with(path: Path | None) -> Iterator[None]:
    """Holds a lock beside the path while the body runs; other local processes wait."""
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _require_server(uri: str) -> None:
    """Checks that something listens at a server's address; MLflow itself would wait for minutes."""
    address = urlsplit(uri)
    if address.scheme not in {"http", "https"} or not address.hostname:
        return
    if getproxies().get(address.scheme) and not proxy_bypass(address.hostname):
        # Behind a proxy only the proxy knows.
        return
    port = address.port or {"http": 80, "https": 443}[address.scheme]
    with socket.create_connection((address.hostname, port), timeout=_CONNECT_S):
        pass


@contextmanager
def store_errors() -> Iterator[None]:
    """Turns a tracker's exceptions into one line.

    Raises:
        StoreError: One of ``tracking_failures`` that is no ``AstraError`` and may pass.
        DamagedStoreError: The same if another try cannot help.
        TrackingError: The database is whole, and what was asked of it is missing.
        DiskFullError: The store's disk is full.
    """
    try:
        yield
    except AstraError:
        raise
    except tracking_failures() as error:
        raise (out_of_memory if is_out_of_memory(error) else _explain)(error) from error


def _without_password(uri: str) -> str:
    return re.sub(r"(?<=://)[^/@]*@", "", uri)


def _explain(error: Exception) -> AstraError:
    database = sqlite_file(tracking_uri())
    if is_disk_full(error):
        return disk_full(error, database or Path.cwd())
    problem = f"{_without_password(tracking_uri())} must answer, got {one_line(error)}"
    if database is None:
        # With a missing driver or an unknown scheme no later try can help.
        is_lasting = isinstance(error, ImportError) or "unsupported uri" in str(error).lower()
        kind = DamagedStoreError if is_lasting else StoreError
        way_out = "MLFLOW_TRACKING_URI"
        if "401" in str(error):
            way_out = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD in .env.example"
        return kind(f"{problem}; see {way_out}")
    if any(word in str(error).lower() for word in _PASSING):
        return StoreError(f"{problem}; another process writes there, try again")
    state = _state_of(database)
    if state == "whole":
        # What was asked for is missing or cannot be done; the file has nothing to do with it.
        return TrackingError(
            f"the tracker must have and do what is asked of it, got {one_line(error)}; "
            f"{database.name} itself is whole: restore or name what is missing"
        )
    if state == "closed":
        return DamagedStoreError(f"{problem}; see that it and its folder may be read and written")
    return DamagedStoreError(
        f"{problem}; restore that file from a copy, or move it away and 'astra run' registers again"
    )


def _state_of(database: Path) -> Literal["whole", "closed", "damaged"]:
    """Whether the file can be opened and read through, whatever an error says of it."""
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=rw", uri=True)) as found:
            is_whole = found.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
    except sqlite3.OperationalError:
        return "closed"
    except sqlite3.Error:
        return "damaged"
    return "whole" if is_whole else "damaged"


def quiet_pyfunc() -> ModuleType:
    """``mlflow.pyfunc``, imported without its warnings about its own type hints."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlflow.pyfunc

    return mlflow.pyfunc


def tracking_failures() -> tuple[type[Exception], ...]:
    """The exceptions of an unreachable, full, locked or damaged tracker; training survives them."""
    from alembic.util.exc import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    # Alembic's error: another MLflow made the tables. ImportError: the driver is missing.
    ours = (OSError, ImportError, TrackingError)
    return (MlflowException, SQLAlchemyError, sqlite3.Error, CommandError, *ours)


def experiment_id(client: "MlflowClient", name: str) -> str:
    """The id of the experiment, created if there is none, with an absolute artifact folder.

    Raises TrackingError if the experiment was deleted.
    """
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return client.create_experiment(name, artifact_location=_artifact_folder(name))
        except MlflowException as error:
            # Another process created it first.
            found = client.get_experiment_by_name(name)
            if found is None:
                raise TrackingError(one_line(error)) from error
    if found.lifecycle_stage == "deleted":
        msg = (
            f"experiment '{name}' must be active, got a deleted one; run 'mlflow experiments "
            f"restore --experiment-id {found.experiment_id}' or change registration.experiment"
        )
        raise TrackingError(msg)
    return str(found.experiment_id)


def mlflow_server_command(port: int = MLFLOW_PORT) -> tuple[list[str], dict[str, str]]:
    """Arguments and extra environment of the server that shows runs and models on this machine.

    It has one worker and no job runner: 0.5 GB and 4 s to the first page, not 2.7 GB and 41 s.

    Raises TrackingError if ``MLFLOW_TRACKING_URI`` names a server, which has its own pages.
    """
    uri = tracking_uri()
    if uri.startswith(("http://", "https://")):
        msg = f"MLFLOW_TRACKING_URI must name a database, got '{uri}'; open that address instead"
        raise TrackingError(msg)
    folder = _artifact_root() or project_root() / ARTIFACTS
    arguments = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri]
    arguments += ["--artifacts-destination", str(folder), "--host", "127.0.0.1"]
    arguments += ["--port", str(port), "--workers", "1"]
    environment = {
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    return arguments, environment


def one_line(error: Exception) -> str:
    """The error as one line that fits a screen."""
    return shorten(f"{type(error).__name__}: {error}", limit=320)


def sqlite_file(uri: str) -> Path | None:
    """The file of a SQLite address, or None for any other address."""
    prefix = "sqlite:///"
    return Path(uri.removeprefix(prefix)) if uri.startswith(prefix) else None


def _artifact_root() -> Path | None:
    """``mlruns`` beside a SQLite store; None for a server, which decides for itself."""
    database = sqlite_file(tracking_uri())
    return None if database is None else database.absolute().parent / ARTIFACTS


def _artifact_folder(experiment: str) -> str | None:
    root = _artifact_root()
    return None if root is None else str(root / re.sub(r"[^\w.-]", "_", experiment))
