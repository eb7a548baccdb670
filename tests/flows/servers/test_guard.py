import pytest
from each_row import each_row
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect

from flows.servers.guard import IN_MEMORY, guard

HERE = "http://127.0.0.1:4200"
SOCKET = "ws://127.0.0.1:4200/socket"


@pytest.fixture
def client():
    """Talks to an application behind the guard that says yes to everything."""

    async def answer(request):
        return PlainTextResponse("done")

    async def accept(socket):
        await socket.accept()
        await socket.send_text("done")
        await socket.close()

    routes = [
        Route("/api", answer, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
        WebSocketRoute("/socket", accept),
    ]
    app = Starlette(routes=routes)
    guard(app)
    return TestClient(app, base_url=HERE)


@each_row(
    "host",
    ["evil.example", "evil.example:4200", "127.0.0.1.evil.example", "192.0.2.1", "", IN_MEMORY],
)
def test_a_request_to_another_name_is_refused(client, host):
    assert 400 == client.post("/api", headers={"host": host}).status_code


def test_what_the_server_asks_itself_passes(client):
    """Else no automation could start a run."""
    itself = TestClient(client.app, base_url=f"http://{IN_MEMORY}")

    assert 200 == itself.post("/api").status_code


@each_row(
    "origin",
    [
        "http://evil.example",
        "http://127.0.0.1:9",
        "http://127.0.0.1",
        "http://localhost:4200",
        "null",
    ],
)
def test_a_request_of_another_page_is_refused(client, origin):
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        reply = client.request(method, "/api", headers={"origin": origin})

        assert 403 == reply.status_code, method
        assert "access-control-allow-origin" not in reply.headers


def test_two_origins_are_not_better_than_one(client):
    headers = [("origin", HERE), ("origin", "http://evil.example")]

    assert 403 == client.post("/api", headers=headers).status_code


@each_row("host", ["127.0.0.1:4200", "localhost:4200", "localhost:9999"])
def test_our_own_pages_and_programs_are_let_in(client, host):
    of_a_page = {"host": host, "origin": f"http://{host}"}

    assert 200 == client.post("/api", headers=of_a_page).status_code
    assert 200 == client.post("/api", headers={"host": host}).status_code


def test_a_socket_of_another_page_is_refused(client):
    with client.websocket_connect(SOCKET, headers={"origin": HERE}) as socket:
        assert "done" == socket.receive_text()
    for headers in ({"origin": "http://evil.example"}, {"host": "evil.example"}):
        with (
            pytest.raises((WebSocketDisconnect, WebSocketDenialResponse)),
            client.websocket_connect(SOCKET, headers=headers),
        ):
            pytest.fail("let in")


def test_our_pages_stand_in_no_foreign_frame_and_talk_to_us_alone(client):
    rules = client.get("/api").headers["content-security-policy"].split("; ")

    assert {"frame-ancestors 'self'", "connect-src 'self' blob: data:"} == set(rules)
