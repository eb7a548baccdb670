"""MLflow's application behind our guard and a secret; ``mlflow server --app-name astra`` serves it.

MLflow's own check rejects pages of other machines, but accepts those of any program on any port of
this machine, and anybody who sends a request himself.
"""

import os
import secrets

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from astra_core.errors import ConfigurationError
from flows.servers.access import HOSTS, LOGIN, basic
from flows.servers.guard import add_login, guard

APP_NAME = "astra"
AUTH = "ASTRA_MLFLOW_AUTH"
"""The variable with the server's secret, as ``user:password``."""
_HEALTH = "/health"
# Only a request of this kind makes a browser keep a login, which it then sends to this port alone;
# a cookie would go to the servers of other users on other ports, too.
LOGIN_PAGE = """<!doctype html>
<title>Astra</title>
<script>
const [login, page] = location.hash.slice(1).split("#");
const [user, password] = login.split(":");
const request = new XMLHttpRequest();
request.open("GET", "/version", true, user, password);
request.onloadend = () => location.replace(page ? `/#${page}` : "/");
request.send();
</script>
"""


def create_app() -> FastAPI:
    """The guarded application; MLflow finds it by the entry point in ``pyproject.toml``."""
    auth = os.environ.get(AUTH, "")
    if not all(auth.partition(":")):
        msg = f"{AUTH} must be set as user:password, got none; 'astra ui' sets it"
        raise ConfigurationError(msg)
    from mlflow.server import fastapi_app

    app: FastAPI = fastapi_app.app
    add_login(app, LOGIN_PAGE)
    app.add_middleware(SecretOnly, auth=auth)
    # The names by which a team's containers call the server, each with its port.
    named = os.environ.get("MLFLOW_SERVER_ALLOWED_HOSTS", "")
    guard(app, hosts=[name.partition(":")[0] for name in named.split(",")] if named else HOSTS)
    return app


class SecretOnly:
    """Answers only requests with the secret, besides the login page and whether it is up."""

    def __init__(self, app: ASGIApp, *, auth: str) -> None:
        self._app = app
        self._expected = basic(auth).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, or asks for the secret."""
        if scope["type"] == "lifespan" or self._is_let_in(scope):
            await self._app(scope, receive, send)
            return
        asked = {"WWW-Authenticate": 'Basic realm="astra", charset="UTF-8"'}
        told = "the secret must be sent as MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD\n"
        await PlainTextResponse(told, 401, asked)(scope, receive, send)

    def _is_let_in(self, scope: Scope) -> bool:
        sent = Headers(scope=scope).get("authorization", "")
        is_known = secrets.compare_digest(sent.encode(), self._expected)
        return is_known or (scope["type"] == "http" and scope["path"] in {LOGIN, _HEALTH})
