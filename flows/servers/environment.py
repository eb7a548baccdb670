"""The environment of flows and servers, set before Prefect is imported and reads its settings."""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt
from tasks.machine.console import quiet_libraries
from tasks.machine.environment import PRIVATE, QUIET, STEADY

if TYPE_CHECKING:
    from flows.servers.services import Service

# Without an address Prefect would start its own server, which accepts requests from any page.
CLOSED = {"PREFECT_SERVER_EPHEMERAL_ENABLED": "false"}
OWN = {
    *CLOSED,
    *PRIVATE,
    "PREFECT_HOME",
    "PREFECT_API_URL",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL",
}


def set_flow_environment() -> None:
    """Sets variables that are not set yet: no telemetry, quiet libraries, Prefect's home here."""
    home = {"PREFECT_HOME": str(Path(".prefect").absolute())}
    for name, value in {**PRIVATE, **QUIET, **STEADY, **CLOSED, **home}.items():
        os.environ.setdefault(name, value)
    if os.environ.get("MLFLOW_TRACKING_URI", "").startswith("http"):
        from flows.servers.addresses import own_tracking_variables

        os.environ |= {**own_tracking_variables(), **os.environ}


@contextmanager
def quiet_run(meanwhile: Callable[[], None] | None = None) -> Iterator[None]:
    """A context for a flow run on a terminal: Prefect logs to its pages, not to the screen.

    It uses the server of ``astra ui`` if it is running, otherwise a temporary one. If a server on
    this machine ends during the run, so does this process.

    Raises ConfigurationError if a variable of Prefect's is invalid, ServiceError if
    ``PREFECT_API_URL`` names a server that does not answer, TrackingError if
    ``MLFLOW_TRACKING_URI`` names no store.
    """
    from flows.orchestration.watch import watch
    from flows.servers.addresses import api_url, client_environment, own_server
    from tasks.tracking.address import check_tracking_uri
    from tasks.tracking.store import tracking_uri

    check_tracking_uri(tracking_uri())
    quiet_libraries()
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    _check_prefect_settings()
    if api_url() is None:
        watch(_start_temporary_server(meanwhile))
    else:
        os.environ |= client_environment()
        server = own_server(os.environ["PREFECT_API_URL"])
        if server is not None:
            watch(server)
    import httpx
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    from flows.orchestration.lost_runs import close_lost_runs

    # Tidying up: a server that is busy, or forbids it, can still take this run.
    with suppress(httpx.HTTPError):
        close_lost_runs(of_workers=False)

    # Heartbeats let a server notice a lost worker; here they add a second to the end of each run.
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield


def _check_prefect_settings() -> None:
    """Checks that Prefect can read the user's settings, which it does when imported."""
    if not any(name.startswith("PREFECT_") and name not in OWN for name in os.environ):
        # The import takes a second, which a temporary server can use to start.
        return
    try:
        # During the import Prefect prints the problem that is reported below, on many lines.
        with redirect_stderr(io.StringIO()):
            from prefect.settings import get_current_settings

            get_current_settings()
    except ValidationError as error:
        problem = error.errors()[0]
        place = "_".join(map(str, problem["loc"])).upper()
        msg = (
            f"Prefect's setting {place} must be valid, got {excerpt(problem['input'])}: "
            f"{problem['msg']}; correct or unset the variable"
        )
        raise ConfigurationError(msg) from None


def _start_temporary_server(meanwhile: Callable[[], None] | None) -> "Service":
    """The server, once it is ready; meanwhile this process imports what the run needs."""
    from flows.servers.services import wait_until_ready
    from flows.servers.temporary_server import start_temporary_server

    server = start_temporary_server()
    import mlflow  # noqa: F401 - takes seconds, which promotion then need not wait for

    if meanwhile is not None:
        meanwhile()
    wait_until_ready(server, "/api/health")
    return server
