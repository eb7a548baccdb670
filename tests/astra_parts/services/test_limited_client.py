import asyncio

import httpx
import pytest

from astra_parts.bodies import MOST_FIGURES
from astra_parts.services.limited_client import TooLongError, limited_client


class Played(httpx.AsyncClient):
    """Answers as ``headers`` and ``parts`` say."""

    headers_of, parts = {}, []

    def __init__(self, **options):
        async def body():
            for part in self.parts:
                yield part

        def answer(request):
            assert request.headers["accept-encoding"] == "identity"
            return httpx.Response(200, headers=self.headers_of, content=body())

        super().__init__(**options, transport=httpx.MockTransport(answer))


async def read(*parts, **headers):
    played = type("PlayedOnce", (Played,), {"headers_of": headers, "parts": parts})
    async with limited_client(played) as client:
        return (await client.get("http://a")).content


def test_an_answer_is_read_up_to_its_limit():
    part = bytes(MOST_FIGURES // 2)

    assert MOST_FIGURES == len(asyncio.run(read(part, part)))
    with pytest.raises(TooLongError, match=f"more than {MOST_FIGURES} bytes"):
        asyncio.run(read(part, part, b"x", b"not read"))


def test_a_packed_answer_is_not_unpacked():
    with pytest.raises(TooLongError, match="a packed answer"):
        asyncio.run(read(b"", **{"content-encoding": "gzip"}))
