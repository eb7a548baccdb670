import json

import pytest
from hostile_server import hostile_server, huge

from astra_parts.targets.calls import CallError
from astra_parts.targets.server import Server, ServerOptions


def server_at(url, **options):
    return Server(ServerOptions(base_url=f"{url}/", **options))


def mirror(handler, body, _):
    handler.give_json({"path": handler.path, "body": body, "key": handler.headers["Authorization"]})


def test_a_body_is_posted_and_without_one_it_is_got_also_after_it_was_closed(monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret")
    with hostile_server(mirror) as there:
        server = server_at(there.url, key_env="MY_KEY")
        found = [json.loads(server.fetch("a", {"x": "\ud800"}, key="k").content)]
        server.close()
        found.append(json.loads(server.fetch("models").content))
        server.close()
    bearer = {"key": "Bearer secret"}
    assert found == [
        {"path": "/v1/a", "body": {"x": "?"}, **bearer},
        {"path": "/v1/models", "body": {}, **bearer},
    ]
    # What is got is not counted.
    assert {"k": 1} == there.keys


def test_what_is_too_large_or_does_not_come_has_failed():
    with hostile_server(huge) as there:
        server = server_at(there.url, max_reply_bytes=1000)
        with pytest.raises(CallError, match="longer than 1000 bytes") as told:
            server.fetch("a", {})
        assert told.value.is_final
        server.close()
    gone = server_at("http://127.0.0.1:1/v1")
    with pytest.raises(
        CallError, match=r"127\.0\.0\.1:1/v1/ cannot be reached .*ConnectError"
    ) as told:
        gone.fetch("a", {})
    assert ("down", False) == (told.value.kind, told.value.is_final)
    gone.close()
