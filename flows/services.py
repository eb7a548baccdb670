"""The servers on this machine: Prefect's, MLflow's and a worker, started, found and stopped."""

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from astra_core.errors import AstraError
from astra_core.files import read_json, write_json
from flows.processes import SERVER, child_environment, stage_command, stop_group
from tasks.environment import PRIVATE, QUIET, STEADY

SERVICES = Path(".astra/services.json")
LOGS = Path(".astra/logs")
WORK_POOL = "astra-local"
START_TIMEOUT_S = 120.0
LEASES = "prefect.server.concurrency.lease_storage.filesystem"


class ServiceError(AstraError, RuntimeError):
    """A server does not start, or none answers."""


@dataclass(frozen=True, slots=True)
class Service:
    """One process we started.

    Attributes:
        name: Also the name of its log.
        pid: Leads a process group of its own.
        started: Time stamp that tells the process from a later one of the same number.
        url: Where a person looks, or nothing.
    """

    name: str
    pid: int
    started: float
    url: str = ""

    def is_alive(self) -> bool:
        """Whether that very process still runs."""
        import psutil

        try:
            process = psutil.Process(self.pid)
            return bool(
                process.status() != psutil.STATUS_ZOMBIE
                and abs(process.create_time() - self.started) < 1.0
            )
        except psutil.NoSuchProcess:
            return False


def start(
    name: str, command: Sequence[str], environment: Mapping[str, str], *, url: str = ""
) -> Service:
    """The service, started in a group of its own with its output in a log; not yet ready."""
    import psutil

    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603
            command,
            env={**child_environment({**PRIVATE, **QUIET, **STEADY}), **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _children[process.pid] = process
    return Service(name, process.pid, psutil.Process(process.pid).create_time(), url)


def prefect_server(port: int) -> Service:
    """Prefect's server and pages, started."""
    _require_free(port, "--prefect-port")
    command = stage_command(
        "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)
    )
    address = f"http://127.0.0.1:{port}"
    environment = {
        "PREFECT_API_URL": f"{address}/api",
        "PREFECT_UI_API_URL": f"{address}/api",
        # In memory, a restart would forget which run holds which slot.
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": LEASES,
    }
    return start("prefect-server", command, environment, url=address)


def mlflow_server(port: int) -> Service:
    """MLflow's server and pages, started."""
    from tasks.tracking_store import mlflow_server_command

    _require_free(port, "--mlflow-port")
    command, environment = mlflow_server_command(port)
    return start("mlflow-server", command, environment, url=f"http://127.0.0.1:{port}")


def worker(api_url: str) -> Service:
    """A worker that runs scheduled flows on this machine, started; there must be no other.

    A run that an earlier worker left behind is closed first.
    """
    os.environ["PREFECT_API_URL"] = api_url
    from flows.lost_runs import close_lost_runs

    close_lost_runs()
    return start("worker", worker_command(), {"PREFECT_API_URL": api_url})


def worker_command() -> list[str]:
    """The command of a worker of our pool; the pool is made if it is missing."""
    return stage_command("prefect", "worker", "start", "--pool", WORK_POOL, "--type", "process")


def wait_until_ready(service: Service, path: str, *, timeout_s: float = START_TIMEOUT_S) -> None:
    """Returns when the service answers at ``path``.

    Raises:
        ServiceError: It ended, or did not answer in time.
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
    except (OSError, urllib.error.URLError):
        return False


def remember(services: Sequence[Service]) -> None:
    """Leaves the services where other commands find them."""
    write_json([asdict(service) for service in services], SERVICES)


def running() -> list[Service]:
    """The services that were remembered and still run."""
    if not SERVICES.is_file():
        return []
    try:
        known = [Service(**entry) for entry in read_json(SERVICES)]
    except (json.JSONDecodeError, TypeError):
        return []
    return [service for service in known if service.is_alive()]


def stop(services: Sequence[Service]) -> None:
    """Returns when the services are gone, the last started first; their flow runs end with them."""
    for service in reversed(services):
        child = _children.pop(service.pid, None)
        if child is not None or service.is_alive():
            stop_group(service.pid, SERVER, child=child)
        if service.name == "worker":
            _close_lost_runs(services)
    SERVICES.unlink(missing_ok=True)


def api_url() -> str | None:
    """Where a Prefect server is known to be: ``PREFECT_API_URL``, or the one we started."""
    named = os.environ.get("PREFECT_API_URL")
    if named:
        return named
    found = [service.url for service in running() if service.name == "prefect-server"]
    return f"{found[0]}/api" if found and answers(f"{found[0]}/api/health") else None


def require_api_url() -> str:
    """The address of a Prefect server that answers.

    Raises:
        ServiceError: There is none.
    """
    url = api_url()
    if url is None or not answers(f"{url}/health"):
        place = f"at {url}" if url else "on this machine"
        msg = f"a Prefect server must answer {place}, got none; start one with 'astra ui'"
        raise ServiceError(msg)
    return url


def _close_lost_runs(services: Sequence[Service]) -> None:
    """Tells the server, while it is up, that the stopped worker's flow runs are over."""
    url = next((service.url for service in services if service.name == "prefect-server"), "")
    if not answers(f"{url}/api/health"):
        return
    os.environ["PREFECT_API_URL"] = f"{url}/api"
    from flows.lost_runs import close_lost_runs

    close_lost_runs()


# Our own children must be waited for; a zombie would look alive.
_children: dict[int, "subprocess.Popen[bytes]"] = {}


def has_ended(service: Service) -> bool:
    """Whether the service does not run any more."""
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
