"""One limit for a whole request over HTTP, from the connection to the last byte.

The client's own limit is for each single read, so a server that sends a byte now and then, also in
headers, would never reach it. Here no read or write may go beyond the request's deadline.
"""

import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx


class Deadlines:
    """The deadline of the request that each thread is making."""

    def __init__(self) -> None:
        self._own = threading.local()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """A scope in which this thread's reads and writes may take so many seconds in all."""
        self._own.end = time.monotonic() + seconds
        try:
            yield
        finally:
            self._own.end = None

    def left(self, timeout: float | None, error: type[Exception]) -> float | None:
        """Seconds that the next read or write may take.

        Args:
            timeout: The limit of that read or write alone.
            error: The error to raise when no time is left.
        """
        end = getattr(self._own, "end", None)
        if end is None:
            return timeout
        left: float = end - time.monotonic()
        if left <= 0.0:
            msg = "the request takes too long"
            raise error(msg)
        return left if timeout is None else min(left, timeout)

    def hold_for(self, client: httpx.Client) -> None:
        """Makes a client's connections respect the deadlines, also connections over a proxy."""
        # Neither library lets its user choose what opens sockets.
        for transport in (client._transport, *client._mounts.values()):  # noqa: SLF001
            if isinstance(transport, httpx.HTTPTransport):
                pool: Any = transport._pool  # noqa: SLF001
                pool._network_backend = _Backend(pool._network_backend, self)  # noqa: SLF001


class _Backend(httpcore.NetworkBackend):
    """Opens streams that respect the deadline."""

    def __init__(self, inner: httpcore.NetworkBackend, deadlines: Deadlines) -> None:
        self._inner, self._deadlines = inner, deadlines

    def connect_tcp(  # noqa: PLR0917 - the library gives them by place
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        left = self._deadlines.left(timeout, httpcore.ConnectTimeout)
        opened = self._inner.connect_tcp(host, port, left, local_address, socket_options)
        return _Stream(opened, self._deadlines)


class _Stream(httpcore.NetworkStream):
    """Reads and writes until the deadline."""

    def __init__(self, inner: httpcore.NetworkStream, deadlines: Deadlines) -> None:
        self._inner, self._deadlines = inner, deadlines

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._deadlines.left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._deadlines.left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left = self._deadlines.left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, left), self._deadlines)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
