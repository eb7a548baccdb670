from importlib.metadata import entry_points

import pytest
from each_row import each_row
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient, WebSocketDenialResponse

from astra_core.errors import ConfigurationError
from flows.servers.access import LOGIN, basic
from flows.servers.mlflow_pages import APP_NAME, AUTH, SecretOnly, create_app


@pytest.fixture
def client():
    """A client of an application that answers only with the secret."""

    async def answer(request):
        return PlainTextResponse("done")

    paths = ("/api", "/ajax-api", "/health", LOGIN)
    app = Starlette(routes=[*(Route(path, answer) for path in paths), WebSocketRoute("/ws", None)])
    app.add_middleware(SecretOnly, auth="astra:secret")
    return TestClient(app)


def test_mlflow_finds_the_application_by_its_name():
    (found,) = entry_points(group="mlflow.app", name=APP_NAME)

    assert "flows.servers.mlflow_pages:create_app" == found.value


@each_row(
    "sent", ["", "Basic", basic("astra:"), basic("astra:secre"), basic("x:secret"), "Bearer secret"]
)
def test_who_does_not_send_the_secret_is_asked_for_it(client, sent):
    for path in ("/api", "/ajax-api", "/health/../api", "/nothing", "//health"):
        reply = client.get(path, headers={"authorization": sent} if sent else {})

        assert 401 == reply.status_code, path
        assert reply.headers["www-authenticate"].startswith("Basic ")


def test_a_socket_needs_the_secret_too(client):
    with pytest.raises(WebSocketDenialResponse), client.websocket_connect("/ws"):
        pytest.fail("a stranger was let in")


def test_the_secret_opens_and_two_pages_need_none(client):
    assert 200 == client.get("/api", headers={"authorization": basic("astra:secret")}).status_code
    assert 200 == client.get("/health").status_code == client.get(LOGIN).status_code


@each_row("auth", ["", "astra", "astra:", ":secret"])
def test_without_a_secret_there_is_no_server(monkeypatch, auth):
    monkeypatch.setenv(AUTH, auth)
    with pytest.raises(ConfigurationError, match="must be set as user:password, got none"):
        create_app()
