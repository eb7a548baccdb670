import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from each_row import each_row

from astra_core.config import GenerationConfiguration
from astra_core.conversation import Conversation, Message
from astra_core.rollout import Prompt
from astra_parts.targets import wire
from astra_parts.targets.calls import CallError

TAGS = ("<think>", "</think>")


def read(record, *, api="chat", tags=TAGS):
    return wire.read(json.dumps(record).encode(), api=api, tags=tags, prompt="x" * 40)


def chat(content, finish="stop", **more):
    return {"choices": [{"message": {"content": content, **more}, "finish_reason": finish}]}


def test_the_seed_prompt_is_hidden_or_opens():
    said = Conversation(Prompt.of("they are late")).say(Message("user", "why"))

    assert [{"role": "user", "content": "why"}] == wire.messages_of(
        said, system_prompt=None, opens=False
    )
    assert ["be kind", "they are late\nwhy"] == [
        each["content"] for each in wire.messages_of(said, system_prompt="be kind", opens=True)
    ]
    asked = Conversation(Prompt.of("")).say(Message("user", "why"))
    assert [{"role": "user", "content": "why"}] == wire.messages_of(
        asked, system_prompt=None, opens=True
    )


def test_a_system_prompt_is_filled_from_the_prompts_columns():
    said = Conversation(Prompt.of("so", {"secret": "red"})).say(Message("user", "why"))

    system, _ = wire.messages_of(said, system_prompt="Keep {secret}.", opens=False)
    assert {"role": "system", "content": "Keep red."} == system


def test_what_not_every_server_takes_is_sent_where_it_is_set():
    assert {"temperature": 1.0, "top_p": 1.0} == wire.sampling(GenerationConfiguration())
    given = GenerationConfiguration(
        min_new_tokens=2, top_k=3, min_p=0.1, repetition_penalty=1.5, temperature=0.5, top_p=0.9
    )
    assert {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 3,
        "min_p": 0.1,
        "repetition_penalty": 1.5,
        "min_tokens": 2,
    } == wire.sampling(given)


@each_row(
    ("told", "expected"),
    [("length", "length"), ("content_filter", "filter"), ("eos", "stop"), (None, "stop")],
)
def test_the_reason_of_the_end_is_one_of_three(told, expected):
    assert expected == read(chat("so", told)).finish


def test_a_refusal_is_a_reply_that_was_filtered():
    found = read(chat(None, refusal="I will not"))

    assert ("I will not", "filter") == (found.text, found.finish)


@each_row(
    ("text", "shown", "thought"),
    [
        ("so", "so", ""),
        ("<think>hm</think>\n\nso", "so", "hm"),
        ("hm</think>so", "so", "hm"),
        ("<think>hm, cut off", "", "hm, cut off"),
    ],
)
def test_reasoning_is_not_shown(text, shown, thought):
    assert (shown, thought) == (read(chat(text)).text, read(chat(text)).thinking)
    assert text == read(chat(text), tags=()).text


def test_reasoning_of_its_own_field_is_kept_apart():
    assert "hm" == read(chat("so", reasoning_content="hm")).thinking


def test_tokens_are_the_servers_or_about():
    usage = {"prompt_tokens": 3, "completion_tokens": 4}

    told = read({**chat("abcdefgh"), "usage": usage})
    assert (3, 4) == (told.tokens_in, told.tokens_out)
    about = read({**chat("abcdefgh"), "usage": {"prompt_tokens": "many"}})
    assert (10, 2) == (about.tokens_in, about.tokens_out)


def test_completions_have_a_text():
    kept = read(
        {"choices": [{"text": "so"}], "model": "m", "system_fingerprint": "f"}, api="completions"
    )

    assert ("so", "m f") == (kept.text, kept.model)


def test_retry_after_is_seconds_or_a_date():
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)

    assert 7.0 == wire.call_error(429, {"retry-after": "7"}, b"").wait_s
    assert 80.0 < wire.call_error(503, {"retry-after": later}, b"").wait_s <= 90.0
    assert 0.0 == wire.call_error(500, {"retry-after": "soon"}, b"").wait_s


@each_row(
    ("status", "kind", "is_final"),
    [
        (429, "rate_limited", False),
        (500, "server", False),
        (503, "server", False),
        (408, "server", False),
        (400, "refused", True),
        (403, "refused", True),
        (302, "refused", True),
    ],
)
def test_what_a_status_means(status, kind, is_final):
    error = wire.call_error(status, {}, b"no JSON")

    assert (kind, is_final) == (error.kind, error.is_final)


@each_row(
    ("status", "error", "expected"),
    [
        (400, {"message": "you are bad", "code": "too_long"}, "(too_long, y·· a·· b··)"),
        (
            400,
            {"message": "No max_tokens; use max_completion_tokens", "param": "max_tokens"},
            "(max_tokens, N· max_tokens; u·· max_completion_tokens); see max_tokens_name",
        ),
        (422, {"message": "at most 4096 of top_logprobs"}, "(a· m··· 4096 o· top_logprobs)"),
        # What the probe says is masked, whole or cut, in any case.
        (400, {"message": "got kill_all_5 of 77"}, "(g·· k········· o· 7·)"),
        (400, {"message": "got kill_all, at 6"}, "(g·· k·······, a· 6)"),
        (400, {"message": "bad kill_all_five"}, "(b·· k············)"),
        (401, {"message": "bad key"}, "(bad key); key_env or key_file must name the server's key"),
        (403, {}, "; key_env or key_file must name the server's key"),
    ],
)
def test_what_a_server_says_is_shown_but_for_the_conversation(status, error, expected):
    content = json.dumps({"error": error}).encode()

    words = wire.call_error(
        status, {}, content, sent="Kill_All_5 of 77 times: kill all, five"
    ).words

    assert expected == words.removeprefix(f"the server answers {status}").strip()


def test_without_what_was_sent_every_word_is_masked():
    error = wire.call_error(400, {}, b'{"error": {"message": "no max_tokens"}}')

    assert "the server answers 400 (n· m·········)" == error.words


@each_row(
    ("content", "way"),
    [
        (b"\n<!DOCTYPE html><html>", "bytes); it is a page: base_url most often ends in /v1"),
        (b'data: {"choices": []}', "it is a stream, which is not read: let extra ask for none"),
        (b'{"choices": [{"mess', "in 19 bytes)"),
    ],
)
def test_what_is_no_json_says_what_may_be_wrong(content, way):
    with pytest.raises(CallError) as caught:
        wire.read(content, api="chat", tags=(), prompt="")
    assert caught.value.words.endswith(way)


def test_deep_json_is_malformed():
    with pytest.raises(CallError, match="RecursionError"):
        wire.read(b"[" * 100_000, api="chat", tags=(), prompt="")


PARTS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
    {"type": "text", "text": "so "},
    {"type": "text", "text": "it is"},
]


@each_row(
    ("answer", "said"),
    [
        (chat(PARTS[1:]), ("so it is", "", "stop")),
        (chat(PARTS), ("so it is", "hm", "stop")),
        (chat("so", reasoning=[{"text": "hm"}]), ("so", "hm", "stop")),
        # Cut off within its reasoning, and taken away by a filter: a user sees nothing.
        (chat(None, "length", reasoning_content="hm"), ("", "hm", "length")),
        (chat(None, "content_filter"), ("", "", "filter")),
    ],
)
def test_what_is_said_in_parts_or_not_at_all_is_a_reply(answer, said):
    kept = read(answer)

    assert said == (kept.text, kept.thinking, kept.finish)


@each_row(
    ("answer", "words"),
    [
        (chat(None), "has no text$"),
        (chat([]), "has no text$"),
        (chat([{"type": "image_url"}]), "has no text$"),
        (chat(None, "tool_calls", tool_calls=[{"id": "1"}]), "no text but calls of tools"),
    ],
)
def test_an_answer_that_says_nothing_is_empty(answer, words):
    with pytest.raises(CallError, match=words) as caught:
        read(answer)
    assert "empty" == caught.value.kind


def test_a_count_of_tokens_beyond_reason_is_none():
    assert 2 == read({**chat("abcdefgh"), "usage": {"completion_tokens": 10**30}}).tokens_out


def test_a_path_that_is_not_there_says_what_may_be_wrong():
    words = wire.call_error(404, {}, b'{"detail": "Not Found"}').words

    assert "404 (Not Found); base_url most often ends in /v1" in words
