"""The HTTP client of a service's own package, with a limit of size for each answer."""

from collections.abc import AsyncIterator

import httpx

from astra_parts.bodies import MOST_FIGURES


class TooLongError(BaseException):
    """An answer over its limit.

    No ``Exception``, after each of which such packages ask again, for minutes.
    """


class _Limited(httpx.AsyncByteStream):
    """A body of which no more than the limit is read."""

    def __init__(self, body: httpx.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._body:
            size += len(part)
            if size > MOST_FIGURES:
                msg = f"an answer of more than {MOST_FIGURES} bytes"
                raise TooLongError(msg)
            yield part

    async def aclose(self) -> None:
        """Closes the whole one."""
        await self._body.aclose()


async def _limit(response: httpx.Response) -> None:
    # Packed answers are not asked for: a few bytes of one can become gigabytes.
    if response.headers.get("content-encoding", "identity") != "identity":
        msg = "a packed answer, which was not asked for"
        raise TooLongError(msg)
    assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101  # for mypy
    response.stream = _Limited(response.stream)


def limited_client(kind: type[httpx.AsyncClient]) -> httpx.AsyncClient:
    """A client of this kind that raises ``TooLongError`` where an answer is too long or packed."""
    return kind(
        http2=True, headers={"Accept-Encoding": "identity"}, event_hooks={"response": [_limit]}
    )
