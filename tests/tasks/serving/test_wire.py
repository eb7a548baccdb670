import httpx
import pytest
from each_row import each_row
from fastapi.testclient import TestClient

from tasks.serving.wire import Body, RefusalError, make_app, read_body

OWN = "own"


class Asked(Body):
    count: int


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
