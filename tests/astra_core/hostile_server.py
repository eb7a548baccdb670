"""A real HTTP server on loopback that answers as an OpenAI-compatible one, or misbehaves."""

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ("you", "are", "bad", "why", "so", "we", "never", "said", "worse", "damn")
Behaviour = Callable[["Handler", dict[str, Any], int], None]


class HostileServer(ThreadingHTTPServer):
    """Counts what it is asked.

    Attributes:
        behave: What it does with request number n, from 1.
        requests: Bodies and headers, in the order of arrival.
        keys: How often each Idempotency-Key came.
        most_at_once: Requests that were open at the same time.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, behave: Behaviour) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behave = behave
        self.requests: list[tuple[dict[str, Any], dict[str, str]]] = []
        self.keys: Counter[str] = Counter()
        self.open = self.most_at_once = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no error."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HostileServer
    # Small answers in one packet, at once.
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        """Is not counted."""
        self.server.behave(self, {}, 0)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.requests.append((body, dict(self.headers)))
            server.keys[self.headers.get("Idempotency-Key", "")] += 1
            number = len(server.requests)
            server.open += 1
            server.most_at_once = max(server.most_at_once, server.open)
        try:
            server.behave(self, body, number)
        finally:
            with server.lock:
                server.open -= 1

    def give(self, content: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def give_json(self, record: Any, status: int = 200, **headers: str) -> None:
        self.give(json.dumps(record).encode(), status, **headers)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def text_for(body: dict[str, Any]) -> str:
    """A reply that depends on what is asked and on the seed alone."""
    asked = json.dumps([body.get("messages"), body.get("prompt"), body.get("seed")])
    digest = hashlib.sha256(asked.encode()).digest()
    return " ".join(WORDS[byte % len(WORDS)] for byte in digest[:6])


def answer(text: str, *, model: str = "tiny", api: str = "chat", **more: Any) -> dict[str, Any]:
    said = {"message": {"role": "assistant", "content": text}} if api == "chat" else {"text": text}
    usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    choice = {"index": 0, "finish_reason": "stop", **said}
    return {"id": "x", "model": model, "choices": [choice], "usage": usage, **more}


def well(handler: Handler, body: dict[str, Any], number: int) -> None:
    """As a server should."""
    api = "chat" if "messages" in body else "completions"
    handler.give_json(answer(text_for(body), api=api))


def slow(handler: Handler, body: dict[str, Any], number: int) -> None:
    """The first bytes of an answer, and then one a while."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.05)


def headers_without_end(handler: Handler, body: dict[str, Any], number: int) -> None:
    """A status, and then a byte of a header a while."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    for _ in range(100):
        handler.wfile.write(b"a")
        handler.wfile.flush()
        time.sleep(0.05)


def plainly(before: bytes, *, of: int = 0) -> Behaviour:
    """A right answer behind these bytes, in which %d is its length and ``of`` more."""

    def behave(handler: Handler, body: dict[str, Any], number: int) -> None:
        content = json.dumps(answer(text_for(body))).encode()
        head = before % (len(content) + of) if b"%d" in before else before
        handler.wfile.write(head + content)
        handler.wfile.flush()
        handler.close_connection = True

    return behave


def hangs_up(handler: Handler, body: dict[str, Any], number: int) -> None:
    """A right answer that promises to keep the connection, which then ends."""
    well(handler, body, number)
    handler.close_connection = True


def cut(handler: Handler, body: dict[str, Any], number: int) -> None:
    """Half of an answer."""
    content = json.dumps(answer(text_for(body))).encode()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content[: len(content) // 2])
    handler.wfile.flush()
    handler.close_connection = True


def huge(handler: Handler, body: dict[str, Any], number: int) -> None:
    """10 MB."""
    handler.give_json(answer("x" * 10_000_000))


@contextmanager
def hostile_server(behave: Behaviour = well) -> Iterator[HostileServer]:
    server = HostileServer(behave)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
