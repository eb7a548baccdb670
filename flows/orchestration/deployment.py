"""Schedules: registers prefect.yaml with a server and starts a worker for scheduled runs."""

import json
import os
import subprocess
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import shorten
from astra_parts.bodies import MOST_JSON
from flows.servers.access import header
from flows.servers.addresses import client_environment
from flows.servers.keeper import keeper_command
from flows.servers.processes import KEEPER, child_environment, run_group, stage_command
from flows.servers.services import WORK_POOL, ServiceError, service_named, worker_command
from tasks.params.yaml_files import load_yaml, read_yaml_text


def deploy_all() -> list[str]:
    """One line for each deployment of prefect.yaml, after it is registered with the server."""
    lines = _deployments()
    environment = _server_environment()
    if not has_pool(environment["PREFECT_API_URL"]):
        _prefect(environment, "work-pool", "create", WORK_POOL, "--type", "process")
    _prefect(environment, "deploy", "--all")
    return [*lines, "'astra worker' or 'astra ui --worker' runs scheduled flows"]


def run_worker() -> int:
    """The exit status of a worker that runs in the foreground.

    Raises ServiceError if no server answers, or a worker runs already.
    """
    if service_named("worker") is not None:
        msg = "a worker must run once, got the one of 'astra ui'; 'astra ui --stop' ends it"
        raise ServiceError(msg)
    environment = _server_environment()
    from flows.orchestration.lost_runs import close_lost_runs

    close_lost_runs()
    return run_group(
        keeper_command(worker_command()),
        environment=environment,
        farewell=KEEPER,
        stdin=subprocess.PIPE,
    )


def _server_environment() -> dict[str, str]:
    """The environment of Prefect's own commands.

    prefect.yaml uses ``PWD`` as the folder of its flows; a process started with another
    working folder would inherit the wrong value.
    """
    os.environ |= client_environment()
    return {**child_environment(), "PWD": str(Path.cwd())}


def has_pool(url: str) -> bool:
    """Whether the server at this address has our pool. Raises ServiceError if it cannot say."""
    address = f"{url}/work_pools/{WORK_POOL}"
    request = urllib.request.Request(address, headers=header())  # noqa: S310 - an address of http
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:  # noqa: S310 - the same
            return bool(json.loads(reply.read(MOST_JSON)))
    except (OSError, ValueError, HTTPException) as error:
        if isinstance(error, HTTPError) and error.code == 404:  # not found
            return False
        msg = f"the Prefect server must answer {address}, got {shorten(str(error))}"
        raise ServiceError(msg) from error


def _prefect(environment: dict[str, str], *arguments: str) -> None:
    """Runs one of Prefect's commands without questions or output."""
    command = stage_command("prefect", "--no-prompt", *arguments)
    done = subprocess.run(  # noqa: S603
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        words = " ".join((done.stderr.strip() or done.stdout.strip()).split())
        msg = f"'prefect {' '.join(arguments)}' must succeed, got: {words[-400:]}"
        raise ServiceError(msg)


def _deployments(path: Path = Path("prefect.yaml")) -> list[str]:
    """One line for each deployment that the file describes."""
    record = load_yaml(read_yaml_text(path), subject=str(path), way_out="correct that line")
    try:
        lines = [
            f"{entry['name']:<25}{', '.join(_times(entry))}" for entry in record["deployments"]
        ]
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
        reason = shorten(f"{type(error).__name__}: {error}", limit=120)
        msg = f"{path} must list deployments with name and schedules, got {reason}; correct it"
        raise ConfigurationError(msg) from error
    if not lines:
        msg = f"{path} must list at least one deployment, got none; restore it from git"
        raise ConfigurationError(msg)
    return lines


def _times(entry: dict[str, Any]) -> list[str]:
    return [str(next(iter(schedule.values()))) for schedule in entry.get("schedules") or []]
