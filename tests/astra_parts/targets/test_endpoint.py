import gzip
import json
import socket
import struct
import time

import pytest
from asking import PROBES, SHORT, ask, conversation, endpoint, texts
from hostile_server import (
    answer,
    cut,
    hangs_up,
    headers_without_end,
    hostile_server,
    huge,
    plainly,
    slow,
    text_for,
    well,
)
from killed_run import kill_at
from outside_calls import outside_calls

from astra_core.config import GenerationConfiguration
from astra_core.errors import ChangedTargetError, ConfigurationError
from astra_core.rollout import Failure
from astra_core.seeding import derive_key
from astra_core.target import Answer
from astra_parts.testing import check_target


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "replies"


def test_it_keeps_the_contract(folder):
    with hostile_server(well) as server:
        check_target(endpoint(server.url, folder))


def test_replies_come_in_order_whatever_the_order_in_which_calls_return(folder):
    def late_first(handler, body, number):
        time.sleep(0.1 if number == 1 else 0.0)
        well(handler, body, number)

    with hostile_server(late_first) as server:
        outcomes = ask(endpoint(server.url, folder, concurrency=6), replies=2)

        by_seed = {body["seed"]: text_for(body) for body, _ in server.requests}
    seeds = [
        [int.from_bytes(derive_key(1, "reply", text, n)[:4], "big") >> 1 for n in range(2)]
        for text in PROBES
    ]
    assert [[by_seed[seed] for seed in own] for own in seeds] == texts(outcomes)
    assert (2, 14, 10) == (
        outcomes[0].usage.calls,
        outcomes[0].usage.tokens_in,
        outcomes[0].usage.tokens_out,
    )
    assert outcomes[0].usage.seconds > 0.0


@pytest.mark.parametrize("count", [1, 4])
def test_concurrency_is_how_many_calls_are_open_at_once(folder, count):
    def steady(handler, body, number):
        time.sleep(0.05)
        well(handler, body, number)

    with hostile_server(steady) as server:
        ask(endpoint(server.url, folder, concurrency=count))

        assert count == server.most_at_once


def test_what_was_answered_is_not_asked_again_in_another_process(folder):
    with hostile_server() as server:
        first = ask(endpoint(server.url, folder), PROBES[:8])
        again = ask(endpoint(server.url, folder), PROBES)

        assert texts(first) == texts(again)[:8]
        assert len(PROBES) == len(server.requests)
        assert {1} == set(server.keys.values())


@pytest.mark.real
def test_a_run_that_is_killed_asks_again_only_what_was_under_way(folder):
    with hostile_server() as server:
        for number in (3, 7):
            kill_at(server, folder, number)
        resumed = texts(ask(endpoint(server.url, folder, name="t", concurrency=4)))
        keys = dict(server.keys)

        # Asked again, a call has the key that it had.
        whole = texts(ask(endpoint(server.url, folder / "whole", name="t")))
        assert (whole, set(keys)) == (resumed, set(server.keys))
    assert len(PROBES) == len(keys)
    assert 2 * 4 >= sum(keys.values()) - len(keys)


def test_another_key_generation_prompt_or_model_is_another_question(folder):
    with hostile_server() as server:
        ask(endpoint(server.url, folder), ["one"])
        ask(endpoint(server.url, folder), ["one"], replies=2)
        ask(endpoint(server.url, folder), ["one"], generation=GenerationConfiguration(top_p=0.5))
        ask(endpoint(server.url, folder, system_prompt="be kind"), ["one"])
        ask(endpoint(server.url, folder, model="other", on_change="warn"), ["one"])

        assert 5 == len(server.requests)


def test_a_name_stands_for_an_address_that_changes(folder):
    told = []
    for _ in range(2):
        with hostile_server() as server:
            told.append(texts(ask(endpoint(server.url, folder, name="tiny at home"))))
            asked = len(server.requests)

    assert told[0] == told[1]
    assert asked == 0


def _status(code, record, **headers):
    def behave(handler, body, number):
        handler.give_json(record, code, **headers)

    return behave


def _content(content):
    return lambda handler, *_: handler.give(content)


def _packed(content):
    return lambda handler, *_: handler.give(content, Content_Encoding="gzip")


def _reset(handler, body, number):
    """Sends nothing and a reset instead of an end."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True


OK, CHUNKS = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ELSEWHERE = {"Location": "http://models.example.org/v1/chat/completions"}
SLOW = {"slow", "headers never end"}
HOSTILE = {
    "slow": (slow, "timeout", "no answer within 1 s"),
    "headers never end": (headers_without_end, "timeout", "no answer within 1 s"),
    "too many headers": (plainly(OK + b"X: a\r\n" * 50_000), "down", "RemoteProtocolError"),
    "longer than said": (
        plainly(OK + b"Content-Length: %d\r\n\r\n", of=-9),
        "malformed",
        "no JSON",
    ),
    "shorter than said": (
        plainly(OK + b"Content-Length: %d\r\n\r\n", of=9),
        "down",
        "RemoteProtocolError",
    ),
    "less than no length": (plainly(OK + b"Content-Length: -1\r\n\r\n"), "down", "broke off"),
    "two lengths": (
        plainly(OK + b"Content-Length: 3\r\nContent-Length: %d\r\n\r\n"),
        "down",
        "RemoteProtocolError",
    ),
    "junk for chunks": (plainly(CHUNKS + b"zz\r\n"), "down", "RemoteProtocolError"),
    "an endless chunk": (plainly(CHUNKS + b"FFFFFFFFFFFFFFFF\r\n"), "down", "broke off"),
    "another protocol": (plainly(b"SSH-2.0-x\r\n"), "down", "RemoteProtocolError"),
    "packed twice": (
        lambda handler, *_: handler.give(
            gzip.compress(gzip.compress(b"{}")), Content_Encoding="gzip, gzip"
        ),
        "malformed",
        "no JSON",
    ),
    "moved elsewhere": (_status(302, {}, **ELSEWHERE), "refused", "not followed"),
    "429": (_status(429, {"error": "much"}, Retry_After="0"), "rate_limited", "answers 429"),
    "500": (_status(500, {"error": {"message": "boo", "type": "E5"}}), "server", "500 (E5, b··)"),
    "wrong JSON": (_content(b"<html>no</html>"), "malformed", "no JSON"),
    "a list": (_content(b"[]"), "malformed", "not a JSON object"),
    "no message": (_content(b'{"choices": [{}]}'), "malformed", "no message"),
    "empty": (_content(b""), "empty", "no JSON"),
    "no choices": (_content(b'{"choices": []}'), "empty", "no choices"),
    "no text": (_content(json.dumps(answer(None)).encode()), "empty", "no text"),
    "200 with error": (_content(b'{"error": {"code": "busy"}}'), "server", "error (busy)"),
    "cut": (cut, "down", "RemoteProtocolError"),
    "10 MB": (huge, "too_large", "longer than 1048576 bytes"),
    "wrong key": (_status(401, {"error": {"message": "no key"}}), "refused", "no key"),
    "too long": (_status(400, {"error": {"message": "a long one"}}), "refused", "(a l··· o··)"),
    "not unpacked": (_packed(b"no gzip"), "malformed", "cannot be decompressed"),
    "bomb": (_packed(gzip.compress(b"x" * 10_000_000)), "too_large", "longer than 1048576 bytes"),
    "reset": (_reset, "down", "broke off"),
    "other letters": (_content(b'{"choices": "\xff"}'), "malformed", "UnicodeDecodeError"),
    "no page": (_status(404, {"detail": "Not Found"}), "refused", "ends in /v1"),
    "too much": (_status(413, {"error": "big"}), "refused", "answers 413"),
    "moved": (_status(307, {}, Location="http://127.0.0.1:9/"), "refused", "not followed"),
}


# One of each way to fail: too many calls, cut, too long, refused, and without a text.
QUICK = ("cut", "10 MB", "429", "wrong key", "no text")


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.real) for name in HOSTILE],
)
def test_a_server_that_misbehaves_once_fails_one_node_and_nothing_is_lost(folder, name):
    behave, kind, words = HOSTILE[name]

    def once(handler, body, number):
        is_bad = "probe 3" in json.dumps(body)
        (behave if is_bad else well)(handler, body, number)

    with hostile_server(once) as server, outside_calls() as elsewhere:
        target = endpoint(server.url, folder, timeout_s=1.0 if name in SLOW else 20.0, retries=1)
        outcomes = ask(target)

        assert [3] == [n for n, each in enumerate(outcomes) if isinstance(each, Failure)]
        assert kind == outcomes[3].kind
        assert words in outcomes[3].reason
        assert "\n" not in outcomes[3].reason
        is_final = kind in {"refused", "too_large"}
        assert (len(PROBES) if is_final else len(PROBES) + 1) == len(server.requests)
        # Once it behaves, only what is missing is asked.
        server.behave = well
        told = texts(ask(endpoint(server.url, folder)))
        assert len(PROBES) - 1 == sum(a == b for a, b in zip(told, texts(outcomes), strict=True))
        assert {2 if is_final else 3, 1} == set(server.keys.values())
        assert [] == elsewhere


@pytest.mark.parametrize(
    "behave", [hangs_up, plainly(b"HTTP/1.0 200 OK\r\n\r\n")], ids=["hangs up", "HTTP/1.0"]
)
def test_a_server_that_keeps_no_connection_loses_nothing(folder, behave):
    with hostile_server(behave) as server:
        # A call can meet a connection that has just been closed, as often as others leave one.
        outcomes = ask(endpoint(server.url, folder, concurrency=2, retries=4))

        assert not any(isinstance(each, Failure) for each in outcomes)


def test_a_server_that_recovers_loses_nothing(folder):
    def shaky(handler, body, number):
        handler.give(b"", 503) if number % 3 == 1 else well(handler, body, number)

    with hostile_server(shaky) as server:
        outcomes = ask(endpoint(server.url, folder, concurrency=1, retries=2))

        assert not any(isinstance(each, Failure) for each in outcomes)


def test_retry_after_is_waited_for_unless_it_is_too_long(folder):
    times = []

    def busy(handler, body, number):
        times.append(time.monotonic())
        if number == 1:
            handler.give_json({}, 429, Retry_After="0.4")
        else:
            well(handler, body, number)

    with hostile_server(busy) as server:
        assert isinstance(ask(endpoint(server.url, folder), ["one"])[0], Answer)
        assert times[1] - times[0] >= 0.4

        server.requests.clear()
        failed = ask(endpoint(server.url, folder, max_wait_s=0.1), ["two"])[0]

        assert "rate_limited" == failed.kind
        assert 1 == len(server.requests)


def test_a_server_that_is_down_ends_a_batch_soon(folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    target = endpoint(url, folder, concurrency=2, retries=1)

    outcomes = ask(target, [f"probe {n}" for n in range(200)])

    assert {"down"} == {each.kind for each in outcomes}
    assert "ConnectError" in outcomes[0].reason
    assert "not asked: the last" in outcomes[-1].reason
    assert target.calls.replies.spending("default").calls < 50


def test_a_model_that_changes_under_way_stops_with_one_line(folder):
    def changing(handler, body, number):
        more = {"system_fingerprint": "fp_2" if number > 4 else "fp_1"}
        handler.give_json(answer(text_for(body), **more))

    with hostile_server(changing) as server:
        with pytest.raises(ChangedTargetError, match=r"got 'tiny fp_2' after 'tiny fp_1'"):
            ask(endpoint(server.url, folder, concurrency=1))
        # Another process knows it too, and what was answered before is kept.
        with pytest.raises(ChangedTargetError, match="set on_change: warn"):
            ask(endpoint(server.url, folder, concurrency=1))
        assert 6 == len(server.requests)
        told = ask(endpoint(server.url, folder, on_change="warn"))
        assert all(isinstance(each, Answer) for each in told)


BODIES = [
    ({}, {"model": "tiny", "max_tokens": 12, "temperature": 1.0, "top_p": 1.0}),
    ({"max_tokens_name": "max_completion_tokens"}, {"max_completion_tokens": 12}),
    ({"extra": {"top_n": 2}}, {"top_n": 2}),
    ({"system_prompt": "be kind"}, {"messages": ["be kind", "one"]}),
    ({"seed": "opening"}, {"messages": ["they are late\none"]}),
    ({"api": "completions"}, {"prompt": "one\n"}),
    ({"api": "completions", "separator": "</s>"}, {"prompt": "one</s>"}),
]


@pytest.mark.parametrize(("options", "expected"), BODIES)
def test_options_change_what_is_sent(folder, options, expected):
    with hostile_server() as server:
        ask(endpoint(server.url, folder, **options), ["one"])
        body = server.requests[0][0]

    if "messages" in expected:
        body["messages"] = [message["content"] for message in body["messages"]]
    assert expected == {name: body[name] for name in expected}


def test_a_seed_is_sent_unless_it_is_not_wanted(folder):
    with hostile_server() as server:
        ask(endpoint(server.url, folder), ["one"])
        ask(endpoint(server.url, folder, send_seed=False), ["one"])

        assert [True, False] == ["seed" in body for body, _ in server.requests]


def test_the_whole_conversation_is_sent_with_its_roles(folder):
    with hostile_server() as server:
        target = endpoint(server.url, folder)
        target.respond([conversation("three", "one", "two")], [[b"k" * 16]], SHORT)

        assert [("user", "one"), ("assistant", "two"), ("user", "three")] == [
            (message["role"], message["content"]) for message in server.requests[0][0]["messages"]
        ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"key_env": "A", "key_file": "b"}, "key_env must be null where key_file is given"),
        ({"thinking": ["<think>"]}, "thinking must be two tags"),
        ({"budget": {"money": 1.0}}, "prices must be given where budget.money is"),
        ({"modle": "x"}, "modle"),
    ],
)
def test_options_that_contradict_each_other_are_one_line(folder, given, message):
    with pytest.raises(ConfigurationError, match=message):
        endpoint("http://127.0.0.1:1", folder, **given)


ODD = {
    "in parts": answer([{"type": "text", "text": "so it is"}]),
    "half a character": answer("so it is\ud83d"),
    "no usage": {"choices": [{"message": {"content": "so it is"}}]},
    "a count beyond reason": answer("so it is", usage={"prompt_tokens": 10**30}),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_answer_is_a_reply_and_is_kept(folder, name):
    with hostile_server(_status(200, ODD[name])) as server:
        [[said]] = texts(ask(endpoint(server.url, folder), PROBES[:1]))
        assert [[said]] == texts(ask(endpoint(server.url, folder), PROBES[:1]))
        assert 1 == len(server.requests)

    assert "so it is" == said.rstrip("?")


def test_an_answer_in_chunks_or_packed_is_a_reply(folder):
    def packed_in_chunks(handler, body, number):
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.send_header("Content-Encoding", "gzip")
        handler.end_headers()
        content = gzip.compress(json.dumps(answer("so it is")).encode())
        for part in (content[:9], content[9:], b""):
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))

    with hostile_server(packed_in_chunks) as server:
        assert [["so it is"]] == texts(ask(endpoint(f"{server.url}/", folder), PROBES[:1]))
