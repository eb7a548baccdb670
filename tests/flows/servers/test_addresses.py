import http.server
import threading

import pytest

from flows.servers import services
from flows.servers.access import auth_string
from flows.servers.addresses import api_url, client_environment, own_server, require_api_url
from flows.servers.services import PREFECT, ServiceError


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "PREFECT_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def address():
    """A server that is well and lets nobody in; it notes what it is sent."""
    sent = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            sent.append((self.path, self.headers["Authorization"]))
            self.send_response(200 if self.path.endswith("/health") else 401)
            self.end_headers()

        def log_message(self, *words):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", sent
        server.shutdown()


def _own(url):
    """A process that is remembered as the server of our pages at this address."""
    service = services.start(PREFECT, ["sleep", "60"], {}, url=url)
    services.remember([service])
    return service


def test_our_own_server_is_given_our_string(address, monkeypatch):
    url, _ = address
    service = _own(url)
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "astra:of-another-project")
    try:
        found = client_environment()
        by_name = own_server(url.replace("127.0.0.1", "localhost"))
    finally:
        services.stop([service])

    expected = {"PREFECT_API_URL": f"{url}/api", "PREFECT_API_AUTH_STRING": auth_string()}
    assert expected == found
    assert service == by_name


def test_another_server_is_not_told_our_string_and_its_refusal_is_a_line(address, monkeypatch):
    url, sent = address
    monkeypatch.setenv("PREFECT_API_URL", f"{url}/api")
    auth_string()
    with pytest.raises(ServiceError, match="must accept PREFECT_API_AUTH_STRING, got a refusal"):
        client_environment()

    assert {None} == {authorization for _, authorization in sent}


def test_without_a_server_the_way_to_start_one_is_named(monkeypatch):
    assert api_url() is None
    with pytest.raises(ServiceError, match="got none; start one with 'astra ui'"):
        require_api_url()
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    with pytest.raises(ServiceError, match=r"at http://127\.0\.0\.1:9/api"):
        require_api_url()
