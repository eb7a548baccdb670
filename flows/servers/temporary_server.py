"""The Prefect server that lives as long as one run, if ``astra ui`` runs none.

It ends with the run, however the run ends: its standard input is a pipe that the kernel closes. A
server that hangs is found in a list and ended by the next run.
"""

import atexit
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from astra_core.files import read_json, write_json
from flows.servers import services
from flows.servers.access import HOST, client_variables, new_auth_string, server_variables
from flows.servers.processes import Farewell, stage_command, stop_group
from flows.servers.services import Service

NAME = "temporary-server"
FOLDER = Path(".astra/temporary_servers")
# It was already asked to end with its run; if it still runs, it hangs.
HURRIED = Farewell(grace_s=1.0, again_s=1.0)
WAIT_S = 10.0


def start_temporary_server() -> Service:
    """A server for this process alone that is starting; our environment then names it.

    Prefect must not have been imported yet: it reads the environment once.
    """
    end_leftovers()
    auth = new_auth_string()
    # Bound here, so that nobody can take the port before the server does.
    with socket.create_server((HOST, 0)) as listener:
        url = f"http://{HOST}:{listener.getsockname()[1]}"
        own = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1"}
        place = ("--socket", str(listener.fileno()))
        server = services.start(
            NAME,
            stage_command("flows.servers.prefect_server", *place, "--lifeline", "--lasting"),
            {**server_variables(url, auth), **own},
            url=url,
            lasting=False,
            pass_fds=(listener.fileno(),),
        )
    atexit.register(stop_temporary_server, server)
    _remember(server)
    os.environ |= client_variables(f"{url}/api", auth)
    return server


def stop_temporary_server(server: Service) -> None:
    """Returns when it is gone."""
    child = services.forget(server)
    if child is None:
        return
    if child.stdin is not None:
        child.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        child.wait(WAIT_S)
    stop_group(server.pid, HURRIED, child=child)
    _place(os.getpid()).unlink(missing_ok=True)


def is_temporary(api: str) -> bool:
    """Whether the server with this API ends with its run."""
    return any(api == f"{server.url}/api" for _, _, server in _entries())


def end_leftovers() -> int:
    """The number of servers that had lost their run and were stopped."""
    ended = 0
    for path, run, server in _entries():
        if run.is_alive():
            continue
        if server.is_alive():
            stop_group(server.pid, HURRIED)
            ended += 1
        path.unlink(missing_ok=True)
    _remove_drafts()
    return ended


def _remove_drafts() -> None:
    """Removes the drafts of entries whose runs were killed while they wrote them."""
    import psutil

    for path in FOLDER.glob(".*.json.partial"):
        number = path.name.split(".")[1]
        if not (number.isdecimal() and psutil.pid_exists(int(number))):
            path.unlink(missing_ok=True)


def _remember(server: Service) -> None:
    import psutil

    run = Service("run", os.getpid(), psutil.Process().create_time())
    write_json({"run": asdict(run), "server": asdict(server)}, _place(run.pid))


def _entries() -> Iterator[tuple[Path, Service, Service]]:
    for path in sorted(FOLDER.glob("*.json")):
        try:
            record = read_json(path)
            yield path, Service(**record["run"]), Service(**record["server"])
        except (json.JSONDecodeError, TypeError, KeyError, FileNotFoundError):
            path.unlink(missing_ok=True)


def _place(pid: int) -> Path:
    return FOLDER / f"{pid}.json"
