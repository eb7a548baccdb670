"""The environment of flows and servers, set before Prefect is imported and read its settings."""

import os
import signal
import threading
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

    Runs at the server of ``astra ui`` if it is up, else at a temporary one.

    Raises:
        ServiceError: ``PREFECT_API_URL`` names a server that does not answer.
    """
    from flows.services import api_url, require_api_url
    from tasks.console import quiet_libraries

    quiet_libraries()
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    url = api_url()
    if url is not None:
        os.environ["PREFECT_API_URL"] = require_api_url()
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    # Heartbeats tell a server of a lost worker; here they cost a second at the end of each run.
    with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        if url is None:
            _start_temporary_server()
        yield


def _start_temporary_server() -> None:
    """Starts the server that the first flow would start, but out of reach of Ctrl-C.

    A terminal sends SIGINT to the server too; without it Prefect tries for a minute to say that the
    run was interrupted, and then shows a stack trace. A blocked signal is inherited by a child, so
    it is started by a thread that blocks SIGINT. Meanwhile this thread imports what comes next.
    """
    problems: list[BaseException] = []
    thread = threading.Thread(target=_start_out_of_reach, args=(problems,), daemon=True)
    thread.start()
    import mlflow  # noqa: F401 - seconds that promotion need not wait for

    thread.join()
    if problems:
        raise problems[0]


def _start_out_of_reach(problems: list[BaseException]) -> None:
    from prefect.server.api.server import SubprocessASGIServer

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        # Without a port it is the very instance that flow runs look for.
        SubprocessASGIServer().start()
    except Exception as error:  # noqa: BLE001 - raised again where the person waits
        problems.append(error)
