import gzip
import time

import httpx
import pytest
from hostile_server import headers_without_end, hostile_server, well

from astra_parts.targets.timed_client import TimedClient

ALL = {"limit_s": 20.0, "most": 10_000}


@pytest.fixture
def client():
    made = TimedClient(headers={"Authorization": "Bearer sk-hidden"})
    yield made
    made.close()


def test_a_request_has_its_headers_and_is_answered_in_bytes(client):
    with hostile_server() as server:
        fetched = client.fetch("POST", server.url, json={}, headers={"Idempotency-Key": "k"}, **ALL)
        ((_, headers),) = server.requests

    assert (200, False, {"k": 1}) == (fetched.status, fetched.is_cut, dict(server.keys))
    assert "Bearer sk-hidden" == headers["Authorization"]
    assert "identity" == headers["Accept-Encoding"]
    assert b"choices" in fetched.content


def test_a_request_ends_at_its_limit_however_often_a_byte_comes(client):
    def seconds(limit_s):
        began = time.monotonic()
        with hostile_server(headers_without_end) as server, pytest.raises(TimeoutError):
            client.fetch("POST", server.url, json={}, limit_s=limit_s, most=1)
        return time.monotonic() - began

    assert 0.2 <= seconds(0.2) < 4.0
    # Nor does it hold up the next one.
    with hostile_server() as server:
        assert 200 == client.fetch("POST", server.url, json={}, **ALL).status


def test_over_a_proxy_the_limit_holds_too():
    with hostile_server(headers_without_end) as server:
        client = TimedClient(proxy=server.url)
        with pytest.raises(TimeoutError):
            client.fetch("POST", "http://model.example.org", json={}, limit_s=0.2, most=1)
        client.close()


def packed(handler, body, number):
    content = b"no" if body["how"] == "br" else gzip.compress(b"x" * 10_000)
    handler.give(content, Content_Encoding=body["how"])


def test_what_is_compressed_unasked_is_read_and_never_grows_beyond_its_limit(client):
    with hostile_server(packed) as server:
        whole = client.fetch("POST", server.url, json={"how": "gzip"}, **ALL)
        cut = client.fetch("POST", server.url, json={"how": "gzip"}, limit_s=20.0, most=9999)
        with pytest.raises(httpx.DecodingError, match="cannot be decompressed"):
            client.fetch("POST", server.url, json={"how": "br"}, **ALL)

    assert (b"x" * 10_000, False) == (whole.content, whole.is_cut)
    assert (b"x" * 9999, True) == (cut.content, cut.is_cut)


def test_of_a_longer_body_no_more_is_read(client):
    with hostile_server(well) as server:
        fetched = client.fetch("POST", server.url, json={}, limit_s=20.0, most=3)

    assert (3, True) == (len(fetched.content), fetched.is_cut)
