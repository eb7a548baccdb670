"""A run that loses its Prefect server ends within seconds with one error line.

Prefect retries for minutes and shows tracebacks; its report is lost either way,
while finished stages stay finished: DVC tracks them, not the server.
"""

import atexit
import os
import socket
import threading
from typing import NoReturn
from urllib.parse import urlsplit

from flows.servers import services
from flows.servers.processes import stop_all
from flows.servers.services import Service
from tasks.machine.memory import memory_limit

POLL_S = 0.5
NUM_REFUSALS = 4  # refusals in a row: two seconds, enough for a server that is restarted
EXIT_LOST_SERVER = 1


def watch(server: Service) -> None:
    """Ends this process once its server, on this machine, is gone.

    Prefect reports to the server until the interpreter ends, so it is watched until then.
    """
    over = threading.Event()
    atexit.register(over.set)
    threading.Thread(target=_watch, args=(server, over), daemon=True).start()


def _watch(server: Service, over: threading.Event) -> None:
    refusals = 0
    while refusals < NUM_REFUSALS and not services.has_ended(server):
        if over.wait(POLL_S):
            return
        refusals = refusals + 1 if _refuses(server.url) else 0
    if not over.is_set():
        _end(server)


def _refuses(url: str) -> bool:
    """Whether nothing listens at the address; a server that is only slow is not gone."""
    address = urlsplit(url)
    try:
        with socket.create_connection((address.hostname, address.port or 80), timeout=POLL_S):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False


def _end(server: Service) -> NoReturn:
    """Stops the running stage and exits at once, without Prefect's shutdown, which would wait."""
    screen = os.fdopen(os.dup(2), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    stop_all()
    limit = memory_limit()
    bound = limit and f" under{limit} of memory"
    log = services.LOGS / f"{server.name}.log"
    screen.write(
        f"error: the Prefect server of this run must keep running, but ended{bound}; what is "
        f"done is kept and the same command resumes from here; see {log}\n"
    )
    screen.flush()
    os._exit(EXIT_LOST_SERVER)
