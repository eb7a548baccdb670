"""``python -m flows.servers.prefect_server``: Prefect's server behind our guard, on 127.0.0.1.

It is like ``prefect server start``, which cannot have a guard. With ``--lifeline`` it ends when its
standard input closes, that is when the process that started it ends for any reason; with
``--lasting`` it ignores signals until then.
"""

import argparse
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import uvicorn

from flows.servers.access import HOST
from flows.servers.guard import add_login, guard
from flows.servers.lifeline import at_end_of_lifeline
from tasks.machine.garbage import collect_rarely

GRACE_S = 3
# Copies the secret into the browser's storage, under the name of the login form of Prefect's pages.
LOGIN_PAGE = """<!doctype html>
<title>Astra</title>
<script>
localStorage.setItem("prefect-password", btoa(location.hash.slice(1)));
location.replace("/");
</script>
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the server until it is asked to end."""
    collect_rarely()
    parser = argparse.ArgumentParser(prog="python -m flows.servers.prefect_server")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--port", type=int)
    place.add_argument("--socket", type=int, help="a descriptor that listens already")
    parser.add_argument("--lifeline", action="store_true", help="end with standard input")
    parser.add_argument("--lasting", action="store_true", help="ignore signals")
    asked = parser.parse_args(arguments)
    # The lifeline is watched before Prefect is imported, which takes seconds.
    servers: list[uvicorn.Server] = []
    if asked.lifeline:
        at_end_of_lifeline(lambda: _end(servers))
    if asked.lasting:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Children would inherit an ignored signal, but not a handler that does nothing.
            signal.signal(number, lambda _number, _frame: None)
    if asked.socket is not None:
        listener = socket.socket(fileno=asked.socket)
    else:
        listener = socket.create_server((HOST, asked.port))
    servers.append((_LastingServer if asked.lasting else uvicorn.Server)(_configuration()))
    servers[0].run(sockets=[listener])


def _configuration() -> uvicorn.Config:
    from prefect.server.api.server import create_app
    from prefect.settings import get_current_settings

    app = create_app()
    add_login(app, LOGIN_PAGE)
    guard(app)
    settings = get_current_settings().server
    return uvicorn.Config(
        app,
        timeout_keep_alive=settings.api.keepalive_timeout,
        ws_ping_interval=settings.api.websocket_ping_interval,
        ws_ping_timeout=settings.api.websocket_ping_timeout,
        log_level=settings.logging_level.lower(),
        timeout_graceful_shutdown=GRACE_S,
    )


class _LastingServer(uvicorn.Server):
    """Ignores the signals that ask a process to end.

    A signal to a whole group or session stops the run too, which needs its server until it ends.
    """

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _end(servers: list[uvicorn.Server]) -> None:
    """Shuts the server down if there is one, then ends the process in any case."""
    if not servers:
        os._exit(0)
    # The kernel's alarm and not a thread: on a busy machine a thread might not run in time.
    signal.alarm(2 * GRACE_S)
    servers[0].should_exit = True


if __name__ == "__main__":
    main()
