"""Blocks of a real Prefect server send to a real webhook and a real mail server on this machine."""

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer

import pytest
from prefect.client.orchestration import get_client
from prefect.states import Crashed

from flows.orchestration.events import announce_decision
from tasks.promotion.decision import PromotionDecision

pytestmark = pytest.mark.real

PAGE = Path(__file__).parents[3] / "docs/prefect.md"
REFUSED = PromotionDecision(
    promoted=False,
    changed=True,
    reasons=("no better",),
    model_name="attacker",
    candidate_version="8",
    champion_version=None,
    previous_version=None,
    comparison=None,
)


class _Hook(BaseHTTPRequestHandler):
    def do_POST(self):
        length = int(self.headers["Content-Length"])
        self.server.heard.append(json.loads(self.rfile.read(length)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


class _Mail(StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"220 sink\r\n")
        for line in iter(self.rfile.readline, b""):
            if line.lower().startswith(b"data"):
                self.wfile.write(b"354 go on\r\n")
                self.server.heard.append(b"".join(iter(self.rfile.readline, b".\r\n")).decode())
            self.wfile.write(b"250 sink\r\n")


@pytest.fixture
def listen():
    """What a handler hears on a port, and the port."""
    servers = []

    def start(handler):
        server = ThreadingTCPServer(("127.0.0.1", 0), handler)
        server.heard = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server.heard, server.server_address[1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_channel_and_a_mailbox_hear_of_a_refusal_once(listen, in_flow):
    (posted, hook), (mailed, box) = listen(_Hook), listen(_Mail)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    code = code.replace("https://hooks.slack.com", f"http://127.0.0.1:{hook}")
    code = code.replace("mailtos://user:password@smtp.example.com", f"mailto://127.0.0.1:{box}")
    # The second replaces the first, so that nothing is sent twice.
    for _ in range(2):
        exec(code, {})  # noqa: S102
    time.sleep(1.0)
    in_flow(announce_decision, REFUSED)
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(client.read_flow_runs()[0].id, Crashed(), force=True)
    end = time.monotonic() + 120.0
    while (len(posted), len(mailed)) < (2, 2) and time.monotonic() < end:
        time.sleep(0.1)

    told = "astra.version.refused: attacker version 8 is not promoted: no better"
    refused, crashed = sorted(posted, key=str)
    assert {"text": told} == refused
    assert crashed["text"].startswith("prefect.flow-run.Crashed: ")
    mail, other = sorted(mailed, key=lambda text: "flow-run.Crashed" in text)
    assert "Subject: prefect.flow-run.Crashed" in other
    assert "To: team@example.com" in mail
    assert "Subject: astra.version.refused" in mail
    assert "attacker version 8 is not promoted: no better" in mail
