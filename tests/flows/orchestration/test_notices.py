"""A webhook block of a real Prefect server posts to a real server on this machine."""

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from flows.orchestration.events import announce_decision
from tasks.promotion.decision import PromotionDecision

pytestmark = pytest.mark.real

PAGE = Path(__file__).parents[3] / "docs/prefect.md"
REFUSED = PromotionDecision(
    promoted=False,
    changed=False,
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


@pytest.fixture
def hook():
    server = HTTPServer(("127.0.0.1", 0), _Hook)
    server.heard = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_webhook_of_the_server_hears_of_a_refusal(hook, in_flow):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    code = code.replace("http://127.0.0.1:8080/hook", f"http://127.0.0.1:{hook.server_port}/")
    # The second replaces the first, so that nothing is posted twice.
    for _ in range(2):
        exec(code, {})  # noqa: S102
    time.sleep(1.0)
    in_flow(announce_decision, REFUSED)
    end = time.monotonic() + 60.0
    while not hook.heard and time.monotonic() < end:
        time.sleep(0.1)

    assert [{"title": "astra.version.refused"}] == [
        {"title": heard["title"]} for heard in hook.heard
    ]
    assert "attacker version 8 is not promoted: no better" in hook.heard[0]["text"]
