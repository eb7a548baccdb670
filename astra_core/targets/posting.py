"""One request over HTTP, within limits of time and size; loads nothing but the client."""

import json
import time
from dataclasses import asdict, dataclass, field
from typing import Self

import httpx

from astra_core.bodies import TooLongError, read_body
from astra_core.targets.deadlines import Deadlines

_TOLD = ("retry-after", "content-encoding")


@dataclass(frozen=True, slots=True)
class Server:
    """Where and how requests are made.

    Attributes:
        url: Of the requests.
        base_url: As the user named it.
        key: Sent as a bearer token; empty for none.
        concurrency: Requests at once.
        timeout_s: Of one request, to the last byte.
        max_reply_bytes: A longer answer is not read.
        is_here: True on this machine, where no proxy of the environment is asked.
    """

    url: str
    base_url: str
    key: str = field(repr=False)
    concurrency: int
    timeout_s: float
    max_reply_bytes: int
    is_here: bool


@dataclass(frozen=True, slots=True)
class Answered:
    """What came back.

    Attributes:
        status: Of HTTP.
        headers: Those that are of use.
        content: As it came, perhaps compressed.
        seconds: From the request to the last byte.
    """

    status: int
    headers: dict[str, str]
    content: bytes
    seconds: float = 0.0

    def line(self) -> str:
        """As JSON."""
        return json.dumps({**asdict(self), "content": self.content.decode("latin-1")})

    @classmethod
    def read(cls, line: str) -> Self:
        """From what ``line`` wrote."""
        told = json.loads(line)
        return cls(**{**told, "content": told["content"].encode("latin-1")})


class UnansweredError(Exception):
    """A request that nothing came back of.

    Args:
        kind: As ``Failure.kind``.
        words: What happened.
        is_final: True where another try would end the same.
    """

    def __init__(self, *, kind: str, words: str, is_final: bool = False) -> None:
        super().__init__(words)
        self.kind, self.words, self.is_final = kind, words, is_final


class Posting:
    """Makes requests of a server, in as many threads as it may."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._deadlines = Deadlines()
        self._client: httpx.Client | None = None

    def post(self, key: str, body: str) -> Answered:
        """The answer to one request.

        Args:
            key: Sent as ``Idempotency-Key``.
            body: JSON.

        Raises:
            UnansweredError: Nothing came back, or too much.
        """
        server, start = self._server, time.perf_counter()
        try:
            status, headers, content = self._posted(key, body.encode("utf-8", "replace"))
        except TooLongError as error:
            raise UnansweredError(kind="too_large", words=str(error), is_final=True) from error
        except httpx.TimeoutException as error:
            words = f"no answer within {server.timeout_s:g} s"
            raise UnansweredError(kind="timeout", words=words) from error
        except httpx.HTTPError as error:
            # By its kind, such as ConnectError: its words may be anything.
            name = type(error).__name__
            words = f"{server.base_url} cannot be reached or broke off ({name})"
            raise UnansweredError(kind="down", words=words) from error
        told = {name: headers[name] for name in _TOLD if name in headers}
        return Answered(status, told, content, time.perf_counter() - start)

    def close(self) -> None:
        """Closes the connections; they open again when they are needed."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _posted(self, key: str, body: bytes) -> tuple[int, httpx.Headers, bytes]:
        server, headers = self._server, {"Idempotency-Key": key}
        with (
            self._deadlines.within(server.timeout_s),
            self._connected().stream("POST", server.url, content=body, headers=headers) as response,
        ):
            content = read_body(response.iter_raw(), most=server.max_reply_bytes)
            return response.status_code, response.headers, content

    def _connected(self) -> httpx.Client:
        if self._client is None:
            server = self._server
            headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
            if server.key:
                headers["Authorization"] = f"Bearer {server.key}"
            count = server.concurrency
            self._client = httpx.Client(
                headers=headers,
                timeout=server.timeout_s,
                limits=httpx.Limits(max_connections=count, max_keepalive_connections=count),
                follow_redirects=False,
                # Reading the certificates takes a while.
                verify=server.url.startswith("https"),
                # A proxy of the environment would see what is meant for this machine alone.
                trust_env=not server.is_here,
            )
            self._deadlines.hold_for(self._client)
        return self._client
