"""``astra ui``: the pages of Prefect and MLflow, in front until Ctrl-C or left running."""

import time

from flows import services
from flows.services import Service, ServiceError
from tasks.console import say


def serve_pages(*, prefect_port: int, mlflow_port: int, worker: bool, detach: bool) -> None:
    """Starts the servers and waits, or leaves them running.

    Raises:
        ServiceError: They run already, a port is in use, or one does not start.
    """
    if services.running():
        msg = (
            "the pages must be started once, got them running already; 'astra ui --stop' ends them"
        )
        raise ServiceError(msg)
    started: list[Service] = []
    try:
        _start(started, prefect_port=prefect_port, mlflow_port=mlflow_port, worker=worker)
        for service in started:
            say(f"{service.name:<15}{service.url or 'runs what is scheduled'}")
        if detach:
            say("'astra ui --stop' ends them")
            return
        say("Ctrl-C ends them")
        _watch(started)
    except BaseException as error:
        services.stop(started)
        if not isinstance(error, KeyboardInterrupt):
            raise


def stop_pages() -> None:
    """Stops what ``astra ui --detach`` left running."""
    left = services.running()
    services.stop(left)
    say(f"stopped {', '.join(service.name for service in left)}" if left else "nothing was running")


def _start(started: list[Service], *, prefect_port: int, mlflow_port: int, worker: bool) -> None:
    """Adds each service to ``started`` the moment it exists, so that a failure can stop them."""
    prefect = services.prefect_server(prefect_port)
    started.append(prefect)
    mlflow = services.mlflow_server(mlflow_port)
    started.append(mlflow)
    services.remember(started)
    services.wait_until_ready(prefect, "/api/health")
    if worker:
        started.append(services.worker(f"{prefect.url}/api"))
        services.remember(started)
    services.wait_until_ready(mlflow, "/health")


def _watch(started: list[Service]) -> None:
    while True:
        for service in started:
            if services.has_ended(service):
                msg = f"{service.name} must keep running, but ended; see {services.LOGS}"
                raise ServiceError(msg)
        time.sleep(0.5)
