import asyncio
import json

import httpx
import pytest
from each_row import each_row
from fastapi import Request
from fastapi.testclient import TestClient

from tasks.serving.wire import ArrivalLimits, Body, RefusalError, body_of, make_app, read_body

OWN = "own"


class Asked(Body):
    count: int
    word: str = ""


def asking(**limits):
    """An application that reads a body."""
    app = make_app("test", token=None)
    (own,) = (each for each in app.user_middleware if each.cls is ArrivalLimits)
    own.kwargs.update(limits)

    @app.post("/")
    async def read(request: Request):
        return (await body_of(request, Asked)).model_dump()

    return app


async def sent(app, parts):
    """The status that a client gets who sends these parts of a body and then waits."""
    told = []
    left = iter(parts)

    async def receive():
        part = next(left, None)
        if part is None:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": part, "more_body": True}

    async def send(message):
        told.append(message.get("status"))

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b""}
    await asyncio.wait_for(app(scope, receive, send), 5)
    return told[0]


def test_a_body_that_stops_half_way_is_given_up():
    assert 408 == asyncio.run(sent(asking(idle_s=0.05), [b'{"count"', b": 1"]))


def test_a_body_that_is_too_long_is_refused_before_it_has_all_arrived():
    assert 413 == asyncio.run(sent(asking(most=10), [b"12345", b"123456"]))
    client = TestClient(asking(most=10, longer={"/": 20}))
    assert 200 == client.post("/", content=b'{"count": 1 }').status_code
    assert 413 == client.post("/", content=b" " * 21).status_code


@each_row("word, status", [(r"\ud83d\ude00", 200), (r"\ud83d", 400), (r"\ude00\ud83d", 400)])
def test_half_of_a_character_is_refused(word, status):
    content = json.dumps({"count": 1, "word": "?"}).replace("?", word)

    assert status == TestClient(asking()).post("/", content=content).status_code


@each_row(
    ("record", "param", "code"),
    [
        ({"count": 1, "tools": []}, "tools", "unknown_parameter"),
        ({"count": "many"}, "count", "invalid_value"),
        ({}, "count", "invalid_value"),
        ([], None, "invalid_value"),
    ],
)
def test_what_is_not_offered_is_refused_by_name(record, param, code):
    with pytest.raises(RefusalError) as refused:
        read_body(record, Asked)

    assert (400, param, code) == (refused.value.status, refused.value.param, refused.value.code)


def test_a_refusal_quotes_no_value():
    with pytest.raises(RefusalError) as refused:
        read_body({"count": "damn"}, Asked)

    assert "damn" not in refused.value.message


@each_row(
    ("headers", "status"),
    [({}, 401), ({"Authorization": "Bearer other"}, 401), ({"Authorization": "Bearer own"}, 404)],
)
def test_a_token_is_asked_for_and_an_unknown_route_answers_in_the_same_shape(headers, status):
    app = make_app("test", token=OWN)
    found = TestClient(app).get("/v1/nothing", headers=headers)

    assert status == found.status_code
    assert {"message", "type", "param", "code"} == found.json()["error"].keys()


def test_without_a_token_nothing_is_asked_for():
    found: httpx.Response = TestClient(make_app("test", token=None)).get("/v1/nothing")

    assert 404 == found.status_code
