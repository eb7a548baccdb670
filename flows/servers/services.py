"""The servers on this machine: Prefect's, MLflow's and a worker, started, found and stopped."""

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

from astra_core.errors import AstraError
from astra_core.files import read_json, write_json
from flows.servers.access import auth_string, client_variables, server_variables
from flows.servers.keeper import keeper_command
from flows.servers.processes import (
    KEEPER,
    SERVER,
    group_members,
    stage_command,
    start_process,
    start_time,
    stop_group,
)
from tasks.machine.ports import MLFLOW_SERVER, SERVICES
from tasks.tracking.store import mlflow_server_command, project_root

LOGS = Path(".astra/logs")
WORK_POOL = "astra-local"
START_TIMEOUT_S = 120.0
PREFECT = "prefect-server"
MLFLOW = MLFLOW_SERVER
MARK = "ASTRA_SERVICE"  # the variable by which a service and all of its children are recognised


class ServiceError(AstraError, RuntimeError):
    """A server does not start, or none answers."""


@dataclass(frozen=True, slots=True)
class Service:
    """One process we started.

    ``started``: time stamp that distinguishes the process from a later one with the same id.
    """

    name: str
    pid: int
    started: float
    url: str = ""

    def is_alive(self) -> bool:
        """Whether this process, and not a later one with its id, still runs."""
        begun = start_time(self.pid)
        return begun is not None and abs(begun - self.started) < 1.0


def start(
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    url: str = "",
    lasting: bool = True,
    pass_fds: Sequence[int] = (),
) -> Service:
    """The service, started in its own process group with its output in a log; not yet ready.

    ``lasting``: whether it stays when this process ends; one that does not must end when its
    standard input does.
    """
    import psutil

    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / f"{name}.log").open("wb") as log:
        process = start_process(
            command,
            log=log,
            environment={**environment, MARK: name},
            stdin=subprocess.DEVNULL if lasting else subprocess.PIPE,
            pass_fds=pass_fds,
        )
    _children[process.pid] = process
    return Service(name, process.pid, psutil.Process(process.pid).create_time(), url)


def prefect_server(port: int, *, lasting: bool = True) -> Service:
    """Prefect's server and pages, started; ``lasting`` as for ``start``."""
    _require_free(port, "--prefect-port")
    address = f"http://127.0.0.1:{port}"
    environment = server_variables(address, auth_string())
    lifeline = [] if lasting else ["--lifeline"]
    command = stage_command("flows.servers.prefect_server", "--port", str(port), *lifeline)
    return start(PREFECT, command, environment, url=address, lasting=lasting)


def mlflow_server(port: int, *, lasting: bool = True) -> Service:
    """MLflow's server and pages, started."""
    from flows.servers.mlflow_pages import APP_NAME, AUTH

    _require_free(port, "--mlflow-port")
    command, environment = mlflow_server_command(port)
    command += ["--app-name", APP_NAME]
    address = f"http://127.0.0.1:{port}"
    environment = {**environment, AUTH: auth_string()}
    # It has no lifeline of its own, nor has a worker.
    command = command if lasting else keeper_command(command)
    return start(MLFLOW, command, environment, url=address, lasting=lasting)


def worker(api_url: str, *, lasting: bool = True) -> Service:
    """A started worker for scheduled flows on this machine; there must be no other.

    A run that an earlier worker left behind is closed first.
    """
    close_lost_runs(api_url)
    command = worker_command() if lasting else keeper_command(worker_command())
    return start("worker", command, client_variables(api_url, auth_string()), lasting=lasting)


def worker_command() -> list[str]:
    """The command of a worker of our pool, which is created if it is missing."""
    return stage_command("prefect", "worker", "start", "--pool", WORK_POOL, "--type", "process")


def wait_until_ready(service: Service, path: str, *, timeout_s: float = START_TIMEOUT_S) -> None:
    """Returns when the service answers at ``path``.

    Raises ServiceError if it ended, or did not answer in time.
    """
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if answers(service.url + path):
            return
        if has_ended(service):
            msg = f"{service.name} must start, but ended; {LOGS / service.name}.log says why"
            raise ServiceError(msg)
        time.sleep(0.2)
    msg = f"{service.name} must answer within {timeout_s:g} s; see {LOGS / service.name}.log"
    raise ServiceError(msg)


def answers(url: str) -> bool:
    """Whether a GET of ``url`` succeeds."""
    if not url.startswith("http"):
        return False
    try:
        with urllib.request.urlopen(url, timeout=3) as reply:  # noqa: S310 - our own http address
            return bool(reply.status == 200)
    except (OSError, ValueError, HTTPException):
        return False


def remember(services: Sequence[Service]) -> None:
    """Records the services where other commands find them."""
    write_json([asdict(service) for service in services], SERVICES)


def running() -> list[Service]:
    """The services that were recorded and still run."""
    return [service for service in remembered_services() if service.is_alive()]


def service_named(name: str) -> Service | None:
    """The service with this name that was recorded and still runs."""
    return next((service for service in running() if service.name == name), None)


def remembered_services() -> list[Service]:
    """The services that were recorded, whether they run or not."""
    file = project_root() / SERVICES
    if not file.is_file():
        return []
    try:
        return [service for entry in read_json(file) if (service := _service(entry))]
    except (OSError, ValueError, TypeError, RecursionError):
        return []


def _service(entry: Any) -> Service | None:
    """The service of an entry; none if the entry is damaged."""
    found = Service(**entry)
    is_whole = isinstance(found.pid, int) and 0 < found.pid < 1 << 31
    return found if is_whole and isinstance(found.started, int | float) else None


def stop(services: Sequence[Service]) -> None:
    """Returns when the services are gone, the last one first; their flow runs end with them.

    Also stops processes that a killed service left behind.
    """
    for service in reversed(services):
        child = forget(service)
        if child is not None or service.is_alive() or has_left_processes(service):
            farewell = SERVER if child is None or child.stdin is None else KEEPER
            stop_group(service.pid, farewell, child=child)
        if service.name == "worker":
            # While the server is up, it is told that the stopped worker's flow runs are over.
            url = next((other.url for other in services if other.name == PREFECT), "")
            if answers(f"{url}/api/health"):
                close_lost_runs(f"{url}/api")
    SERVICES.unlink(missing_ok=True)


def has_left_processes(service: Service) -> bool:
    """Whether any process that the service started still runs in its group."""
    import psutil

    for pid in group_members(service.pid):
        with suppress(psutil.Error):
            if psutil.Process(pid).environ().get(MARK) == service.name:
                return True
    return False


def forget(service: Service) -> "subprocess.Popen[bytes] | None":
    """The process of the service, if it is our own child; somebody else must wait for it now."""
    return _children.pop(service.pid, None)


def close_lost_runs(api_url: str, *, of_workers: bool = True) -> None:
    """Tells a server, whose client this process becomes, which runs lost their process."""
    os.environ |= client_variables(api_url, auth_string())
    from flows.orchestration import lost_runs

    lost_runs.close_lost_runs(of_workers=of_workers)


# Our own children must be waited for; a zombie would look alive.
_children: dict[int, "subprocess.Popen[bytes]"] = {}


def has_ended(service: Service) -> bool:
    """Whether the service has ended."""
    child = _children.get(service.pid)
    return child.poll() is not None if child is not None else not service.is_alive()


def _require_free(port: int, option: str) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            msg = f"port {port} must be free, got one in use; name another with {option}"
            raise ServiceError(msg) from None
