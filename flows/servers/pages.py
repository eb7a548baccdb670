"""``astra ui``: the pages of Prefect and MLflow, in the foreground until Ctrl-C or detached."""

import sys
import time

from flows.servers import services
from flows.servers.access import login_link
from flows.servers.addresses import client_environment
from flows.servers.services import Service, ServiceError
from tasks.machine.console import say
from tasks.records.receipt import RECEIPT, RegistrationReceipt
from tasks.records.reports import read_record
from tasks.tracking.database.relocation import follow_move
from tasks.tracking.database.store_check import check_store
from tasks.tracking.pages import runs_page
from tasks.tracking.store import sqlite_file, store_errors, tracking_uri


def serve_pages(*, prefect_port: int, mlflow_port: int, worker: bool, detach: bool) -> None:
    """Starts the servers and waits for Ctrl-C, or leaves them running.

    Raises TrackingError if MLflow's store is damaged or unavailable, so no server could show it;
    ServiceError if the servers run already, a port is in use, or one does not start.
    """
    if services.running():
        msg = (
            "the pages must be started once, got them running already; 'astra ui --stop' ends them"
        )
        raise ServiceError(msg)
    check_store()
    _follow_move()
    started: list[Service] = []
    try:
        ports = {"prefect_port": prefect_port, "mlflow_port": mlflow_port}
        _start(started, **ports, worker=worker, lasting=detach)
        for service in started:
            say(f"{service.name:<15}{_place(service)}")
        if detach:
            say("'astra ui --stop' ends them")
            return
        say("Ctrl-C ends them")
        _watch(started)
    except BaseException as error:
        services.stop(started)
        if not isinstance(error, KeyboardInterrupt):
            raise


def _follow_move() -> None:
    """Updates the artifact paths in MLflow's store, where the server looks them up."""
    database = sqlite_file(tracking_uri())
    if database is not None:
        with store_errors():
            follow_move(database)


def _place(service: Service) -> str:
    """The address to open; only a terminal, never a log, gets the login link."""
    if not service.url:
        return "runs scheduled flows"
    page = ""
    if service.name == services.MLFLOW and RECEIPT.is_file():
        page = runs_page(read_record(RECEIPT, RegistrationReceipt).experiment_id)
    if sys.stdout.isatty():
        return login_link(service.url, page.removeprefix("/"))
    return f"{service.url}{page}"


def tell_login() -> None:
    """Prints the links that log a browser in to the pages, Prefect's first."""
    say(login_link(_running_server().url))
    if (mlflow := services.service_named(services.MLFLOW)) is not None:
        say(login_link(mlflow.url))


def tell_environment() -> None:
    """Prints what a shell must evaluate so that the command ``prefect`` finds the server."""
    for name, value in client_environment(f"{_running_server().url}/api").items():
        say(f"export {name}={value}")


def _running_server() -> Service:
    found = services.service_named(services.PREFECT)
    if found is None:
        msg = "Prefect's pages must run, got none of this project; start them with 'astra ui'"
        raise ServiceError(msg)
    return found


def stop_pages() -> None:
    """Stops the servers that ``astra ui --detach`` left running."""
    left = services.remembered_services()
    services.stop(left)
    say(f"stopped {', '.join(service.name for service in left)}" if left else "nothing was running")


def _start(
    started: list[Service], *, prefect_port: int, mlflow_port: int, worker: bool, lasting: bool
) -> None:
    """Adds each service to ``started`` the moment it exists, so that a failure can stop them."""
    prefect = services.prefect_server(prefect_port, lasting=lasting)
    started.append(prefect)
    mlflow = services.mlflow_server(mlflow_port, lasting=lasting)
    started.append(mlflow)
    services.remember(started)
    services.wait_until_ready(prefect, "/api/health")
    if worker:
        started.append(services.worker(f"{prefect.url}/api", lasting=lasting))
        services.remember(started)
    else:
        services.close_lost_runs(f"{prefect.url}/api", of_workers=False)
    services.wait_until_ready(mlflow, "/health")


def _watch(started: list[Service]) -> None:
    while True:
        for service in started:
            if services.has_ended(service):
                msg = f"{service.name} must keep running, but ended; see {services.LOGS}"
                raise ServiceError(msg)
        time.sleep(0.5)
