"""Protects our servers against other pages in the browser; Prefect itself accepts them all.

A page of another site can send requests to 127.0.0.1, and with DNS rebinding it can reach it under
its own name. A server can require a secret, which such a page does not have; the guard rejects the
request even before that.
"""

from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from flows.servers.access import HOSTS, LOGIN

POLICY_VIOLATION = 1008
IN_MEMORY = "prefect-in-memory"
"""The name by which Prefect's server addresses itself."""
# Prefect's pages would report to an analytics service, whatever its settings say.
POLICY = "connect-src 'self' blob: data:; frame-ancestors 'self'"


def add_login(app: Starlette, page: str) -> None:
    """Adds the page that hands the secret in its own address to the browser; no cache keeps it."""

    async def log_in(_request: object) -> HTMLResponse:
        return HTMLResponse(page, headers={"Cache-Control": "no-store"})

    app.router.routes.insert(0, Route(LOGIN, log_in))


def guard(app: Starlette, *, hosts: Sequence[str] = HOSTS) -> None:
    """Accepts only requests addressed to these names and, from a browser, those of our pages."""
    app.add_middleware(OwnPagesOnly)
    # Added last, so it runs first.
    app.add_middleware(_OwnNamesOnly, allowed_hosts=list(hosts), www_redirect=False)


class _OwnNamesOnly(TrustedHostMiddleware):
    """Rejects requests addressed to another name, except the server's requests to itself.

    An automation of Prefect starts a run by a request that crosses no socket. The server of a
    socket marks the scope, so that no header of a request can claim to be such a request.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, or rejects it."""
        server = scope.get("server") or ("", None)
        if server[0] == IN_MEMORY:
            await self.app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


class OwnPagesOnly:
    """Rejects requests that a browser sends for a page of another origin, also to web sockets.

    Every request that can change something, and every one that a script can read, names the page's
    origin in a browser; programs name none. Another page may not show ours in a frame, nor may
    ours talk to another server.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, or rejects it."""
        if scope["type"] == "lifespan" or _is_own(Headers(scope=scope)):
            await self._app(scope, receive, _add_policy(send))
        elif scope["type"] == "websocket":
            await WebSocketClose(POLICY_VIOLATION, "foreign origin")(scope, receive, send)
        else:
            await PlainTextResponse("foreign origin\n", 403)(scope, receive, send)


def _is_own(headers: Headers) -> bool:
    origins = headers.getlist("origin")
    return all(urlsplit(origin).netloc == headers.get("host") for origin in origins)


def _add_policy(send: Send) -> Send:
    async def forward(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["Content-Security-Policy"] = POLICY
        await send(message)

    return forward
