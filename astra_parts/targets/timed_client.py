"""A client over HTTP with one limit of time for a whole request, to the last byte of its answer.

The limits of httpx are for single reads, which a server that sends a byte now and then never
reaches. A request of its asynchronous client can be cancelled, so requests are made on an event
loop in a thread of its own.
"""

import asyncio
import threading
import weakref
import zlib
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import httpx

_GZIP_OR_ZLIB = 47  # zlib.decompressobj: detects either by its header


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came back.

    Attributes:
        status: The status of HTTP.
        headers: Those of the answer.
        content: The body, decompressed, up to the limit of size.
        is_cut: True if the body is longer.
    """

    status: int
    headers: httpx.Headers
    content: bytes
    is_cut: bool


class TimedClient:
    """Makes requests, from any number of threads; redirects are not followed."""

    def __init__(self, **options: Any) -> None:
        # Without this, httpx asks for encodings that it would decompress without a limit of size.
        options["headers"] = {"Accept-Encoding": "identity", **options.get("headers", {})}
        # Without limits of its own: `fetch` has one for all.
        self._client = httpx.AsyncClient(timeout=None, follow_redirects=False, **options)  # noqa: S113
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        # A daemon: a client that nobody closes must not keep the process.
        self._thread = threading.Thread(
            target=lambda client: asyncio.run(_serve(client, started)),
            args=(self._client,),
            daemon=True,
        )
        self._thread.start()
        self._loop, stopped = started.result()
        self._stop = weakref.finalize(self, self._loop.call_soon_threadsafe, stopped.set)

    def fetch(self, method: str, url: str, *, limit_s: float, most: int, **parts: Any) -> Fetched:
        """The answer to one request.

        Args:
            method: Such as ``GET``.
            url: The whole address.
            limit_s: Seconds for connection, request and answer together.
            most: Bytes of the body, before and after decompression, that are read.
            parts: Of the request, as of ``httpx.Client.request``.

        Raises:
            TimeoutError: The limit was reached; the connection is closed.
            httpx.HTTPError: The server cannot be reached, breaks off or breaks the protocol.
        """
        asked = _fetch(self._client, method, url, limit_s=limit_s, most=most, parts=parts)
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result()

    def close(self) -> None:
        """Closes the connections and ends the thread."""
        self._stop()
        self._thread.join()


async def _serve(
    client: httpx.AsyncClient, started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]
) -> None:
    stopped = asyncio.Event()
    started.set_result((asyncio.get_running_loop(), stopped))
    async with client:
        await stopped.wait()


async def _fetch(
    client: httpx.AsyncClient,
    method: str,
    url: str,
    *,
    limit_s: float,
    most: int,
    parts: dict[str, Any],
) -> Fetched:
    async with asyncio.timeout(limit_s), client.stream(method, url, **parts) as response:
        body = bytearray()
        async for part in response.aiter_raw():
            body += part
            if len(body) > most:
                break
    encoding = response.headers.get("content-encoding", "")
    content = _unpack(bytes(body), encoding, most=most)
    return Fetched(response.status_code, response.headers, content[:most], len(content) > most)


def _unpack(content: bytes, encoding: str, *, most: int) -> bytes:
    """The decompressed body up to one byte more than its limit; some servers compress unasked.

    Raises httpx.DecodingError if it cannot be decompressed.
    """
    if encoding.strip().lower() in {"", "identity"}:
        return content
    try:
        return zlib.decompressobj(wbits=_GZIP_OR_ZLIB).decompress(content, most + 1)
    except zlib.error as error:
        msg = "the answer cannot be decompressed"
        raise httpx.DecodingError(msg) from error
