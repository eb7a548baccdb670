import pytest
from each_row import each_row
from hostile_server import cut, hostile_server, huge, well

from astra_core.targets.posting import Answered, Posting, Server, UnansweredError


def server(url, **changes):
    given = {"url": f"{url}/chat/completions", "base_url": url, "key": "", "concurrency": 2}
    limits = {"timeout_s": 20.0, "max_reply_bytes": 1000, "is_here": True}
    return Server(**{**given, **limits, **changes})


def test_a_request_has_its_key_and_is_answered_in_bytes():
    with hostile_server() as asked:
        posting = Posting(server(asked.url, key="sk-hidden"))
        answered = posting.post("k1", '{"messages": [], "said": "\\ud83d"}')
        posting.close()
        _, headers = asked.requests[0]

    assert (200, {"k1": 1}) == (answered.status, dict(asked.keys))
    assert "Bearer sk-hidden" == headers["Authorization"]
    assert 0.0 < answered.seconds < 20.0
    assert "sk-hidden" not in repr(server(asked.url, key="sk-hidden"))


@each_row(
    ("behave", "changes", "kind", "is_final"),
    [
        (huge, {}, "too_large", True),
        (cut, {}, "down", False),
        (well, {"timeout_s": 1e-9}, "timeout", False),
    ],
)
def test_what_is_no_answer_has_a_kind(behave, changes, kind, is_final):
    with hostile_server(behave) as asked, pytest.raises(UnansweredError) as raised:
        Posting(server(asked.url, **changes)).post("k", "{}")

    assert (kind, is_final) == (raised.value.kind, raised.value.is_final)


def test_an_answer_is_read_as_it_was_written():
    whole = Answered(429, {"retry-after": "2"}, bytes(range(256)), 0.25)

    assert whole == Answered.read(whole.line())
    assert "\n" not in whole.line()
