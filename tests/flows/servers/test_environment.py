import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import prefect
import pytest

from flows.servers.environment import quiet_run, set_flow_environment
from flows.servers.services import ServiceError


@pytest.fixture(autouse=True)
def restored(tmp_path, monkeypatch):
    """The environment as it was, afterwards."""
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def test_prefects_home_is_in_the_project_and_nothing_is_sent(tmp_path):
    for name in ("PREFECT_HOME", "DO_NOT_TRACK"):
        os.environ.pop(name, None)
    set_flow_environment()

    assert str(tmp_path / ".prefect") == os.environ["PREFECT_HOME"]
    assert "true" == os.environ["DO_NOT_TRACK"]


def test_what_a_person_has_set_is_left_alone():
    os.environ["PREFECT_HOME"] = "mine"
    set_flow_environment()

    assert "mine" == os.environ["PREFECT_HOME"]


def test_a_run_uses_the_server_that_is_named_and_sends_no_heartbeats(prefect_server):
    from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY

    os.environ["PREFECT_API_URL"] = PREFECT_API_URL.value()
    with quiet_run():
        assert PREFECT_FLOWS_HEARTBEAT_FREQUENCY.value() is None
        assert "CRITICAL" == os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"]


class Forbidding(BaseHTTPRequestHandler):
    """A server that is alive but lists no runs."""

    def do_GET(self):
        self.answer(404 if "csrf" in self.path else 200, prefect.__version__)

    def do_POST(self):
        self.answer(403, "no")

    def answer(self, status, told):
        body = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_a_server_that_lists_no_lost_runs_takes_a_run():
    with ThreadingHTTPServer(("127.0.0.1", 0), Forbidding) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        os.environ["PREFECT_API_URL"] = f"http://127.0.0.1:{server.server_port}/api"
        begun = False
        with quiet_run():
            begun = True
        server.shutdown()

    assert begun


def test_a_named_server_that_does_not_answer_is_reported_before_anything_runs():
    os.environ["PREFECT_API_URL"] = "http://127.0.0.1:9/api"
    with pytest.raises(ServiceError, match=r"at http://127\.0\.0\.1:9/api"), quiet_run():
        pytest.fail("a run was begun")
