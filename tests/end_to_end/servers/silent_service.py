"""Asks a service that never ends an answer, and prints how each wait ended, as JSON.

The service takes connections and says nothing, takes work and says for ever that it is not done
yet, or goes on and on with an answer: ``silent``, ``busy`` or ``endless``. An object by call:
seconds that it took, its error, and how many tasks the client still had a moment later.
"""

import asyncio
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from astra_core.errors import TrainingError
from astra_parts.services.records import record_of
from astra_parts.services.tinker_client import TinkerService
from astra_parts.services.training_service import AdamStep, Draw, ServiceLoss

LIMIT_S = 0.5
KNOWN = {
    "/api/v1/client/config": {"use_pyqwest_transport": False},
    "/api/v1/client/dynamic_config": {},
    "/api/v1/create_session": {"session_id": "s"},
    "/api/v1/session_heartbeat": {},
    "/api/v1/weights_info": {"base_model": "tiny", "is_lora": True, "lora_rank": 1},
    "/api/v1/create_sampling_session": {"sampling_session_id": "p"},
}


class Handler(BaseHTTPRequestHandler):
    """Says nothing, or takes everything and does none of it."""

    kind = "silent"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.kind == "silent":
            time.sleep(60.0)
        elif self.kind == "endless" and self.path != "/api/v1/client/config":
            self.say(200, {}, endless=True)
        elif self.path in KNOWN:
            self.say(200, KNOWN[self.path])
        elif self.path == "/api/v1/retrieve_future":
            time.sleep(0.01)
            self.say(408, {"queue_state": "active"})
        else:
            self.say(200, {"request_id": "1", "model_id": "m"})

    def do_GET(self):
        time.sleep(60.0)

    def say(self, status, record, *, endless=False):
        body = json.dumps(record).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(1 << 40 if endless else len(body)))
        self.end_headers()
        self.wfile.write(body)
        while endless:
            self.wfile.write(bytes(1 << 20))

    def log_message(self, *_):
        """Keeps quiet."""


def ended(call):
    """How a call ended: seconds, what it said or returned, tasks left."""
    from tinker.lib import internal_client_holder as holder

    loop = holder._internal_client_holder_thread_singleton.get_loop()
    before, begin = asyncio.all_tasks(loop), time.monotonic()
    try:
        said = [str(each) for each in call()]
    except TrainingError as error:
        said = [str(error)]
    took = time.monotonic() - begin
    end = time.monotonic() + 2.0
    while (left := asyncio.all_tasks(loop) - before) and time.monotonic() < end:
        time.sleep(0.01)
    return [took, said, len(left)]


def main(kind):
    Handler.kind = kind
    # Whoever gives up waiting hangs up.
    ThreadingHTTPServer.handle_error = lambda *_: None
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    # Connecting takes seconds on a machine that is busy too.
    limit_s = LIMIT_S if kind == "silent" else 60.0
    service = TinkerService(address, base_model="tiny", rank=1, seed=1, limit_s=limit_s)
    if kind != "busy":
        found = {"begin": ended(service.begin)}
    else:
        import tinker

        holder = service._client.holder
        assert service._sampler("tinker://m/sampler_weights/1")
        assert service._rest
        service._limit_s = LIMIT_S
        found = {"begin": ended(service.begin)}
        record = record_of([1, 2], [0, 1], logprobs=[0.0, -1.0], advantages=[1.0])
        draws = [Draw((1,), seed, 4, ()) for seed in range(8)]
        asked = {
            "go_on_from": lambda: service.go_on_from("tinker://m/weights/1"),
            "update": lambda: service.update(
                [[record]] * 4,
                ServiceLoss("importance_sampling", {}),
                AdamStep(0.1, 0.9, 0.9, 1e-8, 0.0),
            ),
            "save": lambda: service.save("1"),
            "publish": lambda: service.publish("1"),
            "draw": lambda: service.draw(draws, "tinker://m/sampler_weights/1"),
            "score": lambda: service.score([[1, 2]] * 8, "tinker://m/sampler_weights/1"),
        }
        for name, call in asked.items():
            service._training = tinker.TrainingClient(holder, model_seq_id=0, model_id="m")
            found[name] = ended(call)
        archive = Path("unused")
        found["download"] = ended(
            lambda: [service.download("tinker://m/sampler_weights/1", archive)]
        )
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
