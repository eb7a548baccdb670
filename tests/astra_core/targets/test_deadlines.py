import time

import httpx
import pytest
from hostile_server import answer, headers_without_end, hostile_server, well

from astra_core.targets.deadlines import Deadlines


def seconds_of(server, deadlines, limit):
    """Until a request to it has timed out, with a limit of each read that it never meets."""
    began = time.monotonic()
    with httpx.Client(timeout=30.0) as client:
        deadlines.hold_for(client)
        with deadlines.within(limit), pytest.raises(httpx.TimeoutException):
            client.post(server.url, json={})
    return time.monotonic() - began


def test_a_request_ends_at_its_deadline_however_often_a_byte_comes():
    with hostile_server(headers_without_end) as server:
        short, longer = (seconds_of(server, Deadlines(), limit) for limit in (0.2, 0.6))

    assert 0.2 <= short < 0.6 <= longer < 2.0


def test_no_request_is_sent_after_the_deadline():
    with hostile_server() as server:
        deadlines = Deadlines()
        with httpx.Client() as client, deadlines.within(0.0):
            deadlines.hold_for(client)
            with pytest.raises(httpx.ConnectTimeout):
                client.post(server.url, json={})

        assert [] == server.requests


def test_outside_of_a_deadline_the_limit_of_the_client_holds():
    def late(handler, body, number):
        time.sleep(0.3)
        well(handler, body, number)

    with hostile_server(late) as server, httpx.Client(timeout=5.0) as client:
        deadlines = Deadlines()
        deadlines.hold_for(client)
        with deadlines.within(0.1), pytest.raises(httpx.ReadTimeout):
            client.post(server.url, json={})
        assert answer("").keys() == client.post(server.url, json={}).json().keys()
        client.timeout = 0.1
        with pytest.raises(httpx.ReadTimeout), deadlines.within(5.0):
            client.post(server.url, json={})


def test_connections_over_a_proxy_keep_to_it_too():
    with hostile_server(headers_without_end) as server:
        deadlines, began = Deadlines(), time.monotonic()
        with httpx.Client(proxy=server.url, timeout=30.0) as client:
            deadlines.hold_for(client)
            with deadlines.within(0.2), pytest.raises(httpx.TimeoutException):
                client.post("http://model.example.org/v1", json={})

    assert time.monotonic() - began < 2.0
