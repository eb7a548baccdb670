"""``python -m benchmarks.reference.slots_server SLOTS SECONDS``: a model server that idles.

It is an OpenAI-compatible chat server on loopback with a number of slots, each of which takes a
fixed time for a reply, like a batching server. It prints its address, and ends with its standard
input.
"""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_SAID = {"message": {"role": "assistant", "content": "so it is"}, "finish_reason": "stop"}
_USAGE = {"prompt_tokens": 8, "completion_tokens": 3}
_ANSWER = json.dumps({"model": "slots", "choices": [_SAID], "usage": _USAGE}).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, slots: int, seconds: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.slots = threading.BoundedSemaphore(slots)
        self.seconds = seconds


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    # An answer leaves in one packet, at once.
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.slots:
            time.sleep(self.server.seconds)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(_ANSWER)))
        self.end_headers()
        self.wfile.write(_ANSWER)
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


def main() -> None:
    """Serves until standard input ends."""
    server = _Server(int(sys.argv[1]), float(sys.argv[2]))
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
