"""The environment of flows and servers, set before Prefect is imported and read its settings."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.environment import PRIVATE, QUIET, STEADY


def set_flow_environment() -> None:
    """Sets what is not set yet: no telemetry, quiet libraries, Prefect's home in the project."""
    home = {"PREFECT_HOME": str(Path(".prefect").absolute())}
    for name, value in {**PRIVATE, **QUIET, **STEADY, **home}.items():
        os.environ.setdefault(name, value)


@contextmanager
def quiet_run() -> Iterator[None]:
    """Around a flow run on a person's terminal: Prefect logs to its pages, not to the screen.

    Runs at the server of ``astra ui`` if it is up, else at a temporary one that Prefect starts.
    """
    from flows.services import api_url
    from tasks.console import quiet_libraries

    quiet_libraries()
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    url = api_url()
    if url is not None:
        os.environ["PREFECT_API_URL"] = url
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    # Heartbeats tell a server of a lost worker; here they cost a second at the end of each run.
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield
