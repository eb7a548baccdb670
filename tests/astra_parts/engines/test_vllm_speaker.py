import json
import re
import threading

import pytest
import torch
from each_row import each_row
from played_vllm import LORA, played_vllm

from astra_core.config import GenerationConfiguration
from astra_core.errors import ConfigurationError, RolloutError
from astra_core.models.lora import add_adapters
from astra_parts.engines.vllm_speaker import VllmOptions, VllmSpeaker, read, sampling
from astra_parts.targets.calls import CallError
from astra_parts.testing import tiny_language_model

SHORT = GenerationConfiguration(max_new_tokens=6)
NAME = "astra-1"
KEYS = [[b"aaaa", b"bbbb"], [b"cccc"]]


@pytest.fixture
def server():
    with played_vllm() as own:
        yield own


@pytest.fixture
def attacker():
    model = tiny_language_model(1, is_trained=True)
    add_adapters(model.model, LORA, seed=1)
    return model


def speaker(server, attacker, folder, **options):
    given = {"base_url": server.url, "replies": folder / "replies", "retries": 0, "backoff_s": 0.0}
    made = VllmOptions(**{**given, **options})
    attacker.elsewhere = VllmSpeaker(made, attacker, base="0" * 64, folder=folder / "adapters")
    return attacker.elsewhere


def contexts_of(attacker):
    return [attacker.closed_ids(attacker.encode(text)) for text in ("why so", "you are")]


def say(attacker, keys=KEYS, how=SHORT):
    contexts = contexts_of(attacker)
    found = attacker.continuations(contexts, keys, how)
    return [own for each in found for own in each.utterances], contexts


def learn(attacker, change=0.3):
    with torch.no_grad():
        for name, weight in attacker.model.named_parameters():
            if "lora_B" in name:
                weight.add_(change)


def test_what_is_said_is_the_present_adapters_with_the_log_probabilities_of_both(
    server, attacker, tmp_path
):
    own = speaker(server, attacker, tmp_path)
    for version in range(3):
        said, contexts = say(attacker)
        places = [contexts[0], contexts[0], contexts[1]]
        ours = own.score(places, [each.token_ids for each in said])
        for each, row in zip(said, ours, strict=True):
            assert each.logprobs == pytest.approx(row, abs=1e-4)
        assert version + 1 == len(server.loads)
        # The one of now, at the server and on disk.
        assert server.loads[-1:] == list(server.adapters)
        assert server.loads[-1:] == [each.name for each in own._folder.iterdir()]
        learn(attacker)
    own.close()
    assert {} == server.adapters
    assert not own._folder.exists()


def test_nothing_is_removed_but_the_adapters_that_it_wrote(server, attacker, tmp_path):
    own = speaker(server, attacker, tmp_path)
    theirs = [own._folder / name for name in ("astra-project", "astra-notes.txt")]
    theirs[0].mkdir(parents=True)
    theirs[1].write_text("mine", "utf-8")
    say(attacker)
    learn(attacker)
    say(attacker)
    own.close()
    assert sorted(theirs) == sorted(own._folder.iterdir())


def test_what_another_run_has_at_the_server_stays_there(server, attacker, tmp_path):
    first = speaker(server, attacker, tmp_path / "one")
    said = say(attacker)[0]
    [theirs] = server.adapters
    # Of the same weights, and then of others.
    second = speaker(server, attacker, tmp_path / "two")
    assert said == say(attacker)[0]
    assert 2 == len(server.adapters)
    learn(attacker)
    say(attacker)
    assert 2 == len(server.adapters)
    second.close()
    assert [theirs] == list(server.adapters) == [each.name for each in first._folder.iterdir()]
    first.close()


def test_a_server_that_was_started_again_is_given_the_adapters_again(server, attacker, tmp_path):
    own = speaker(server, attacker, tmp_path)
    first = say(attacker)[0]
    server.start_again()
    own.calls.replies.close()
    own.calls.replies.path.unlink()
    second = say(attacker)[0]
    assert first == second
    assert 2 == len(server.loads) == 2 * len({*server.loads})
    attacker.elsewhere.close()


def say_all(server, attacker, folder):
    speaker(server, attacker, folder)
    return say(attacker)[0]


def test_a_server_that_dies_in_mid_rollout_ends_it_in_one_line_and_the_next_try_as_if_it_had_not(
    server, attacker, tmp_path
):
    whole = say_all(server, attacker, tmp_path / "whole")
    attacker.elsewhere.close()
    server.start_again()
    server.paths.clear()

    def die(handler, body, number):
        if server.paths.count("completions") >= 2:
            handler.close_connection = True
        else:
            server.answer(handler, body, number)

    server.behave = die
    # One draw after the other, so that some are answered: the first, and that which tries it.
    speaker(server, attacker, tmp_path, concurrency=1)
    with pytest.raises(RolloutError, match=r"^trainer 'vllm': .* cannot be .*run again$") as told:
        say(attacker)
    assert "\n" not in str(told.value)
    server.start_again()
    server.behave, before = server.answer, server.paths.count("completions")

    assert whole == say(attacker)[0]
    # Two that were missing, one of them after it was told that there are no adapters; and the try.
    assert 4 == server.paths.count("completions") - before
    attacker.elsewhere.close()


@each_row(
    ("change", "reason"),
    [
        (lambda told: {**told, "model": "astra-0"}, "must be of the adapters astra-.*'astra-0'"),
        (lambda told: told["choices"][0].update(finish_reason="abort") or told, "broke the draw"),
        (lambda told: told["choices"][0].pop("token_ids") and told, "no token ids with their log"),
        (lambda told: [told], "no token ids with their log"),
    ],
)
def test_an_answer_of_other_adapters_or_half_of_one_is_refused(attacker, tmp_path, change, reason):
    with played_vllm() as server:
        server.answered = change
        speaker(server, attacker, tmp_path)

        with pytest.raises(RolloutError, match=reason):
            say(attacker)
        attacker.elsewhere.close()


def test_a_server_of_another_base_model_is_found_by_its_log_probabilities(attacker, tmp_path):
    with played_vllm(seed=5) as server:
        speaker(server, attacker, tmp_path)

        with pytest.raises(RolloutError, match=r"within 0\.5 nats a token .*serve the model of"):
            say(attacker)
        # The next try looks again.
        assert {} == server.adapters
        attacker.elsewhere.close()


def test_adapters_whose_check_failed_are_checked_before_anything_is_drawn(attacker, tmp_path):
    first = threading.Lock()
    with played_vllm(seed=5) as server:

        def fail_once(handler, body, number):
            is_draw = handler.path.endswith("completions")
            if is_draw and server.loads and first.acquire(blocking=False):
                handler.give_json({"error": {"message": "busy"}}, 503)
            else:
                server.answer(handler, body, number)

        server.behave = fail_once
        own = speaker(server, attacker, tmp_path, retries=1)
        with pytest.raises(RolloutError, match=r"within 0\.5 nats a token"):
            say(attacker)
        assert {} == server.adapters
        own.close()


def test_a_draw_between_loading_and_check_is_not_used(server, attacker, tmp_path):
    """The server comes back with another base; one draw waits there until adapters are loaded."""
    own = speaker(server, attacker, tmp_path, concurrency=2)
    say(attacker)
    before = own.calls.replies.spending("default").tokens_out
    loaded, answered, first = threading.Event(), threading.Event(), threading.Lock()
    with played_vllm(seed=5) as other:

        def behave(handler, body, number):
            is_draw = handler.path.endswith("completions")
            if is_draw and first.acquire(blocking=False):
                loaded.wait(20)
                other.answer(handler, body, number)
                answered.set()
                return
            if is_draw and loaded.is_set():
                answered.wait(20)
            other.answer(handler, body, number)
            if handler.path.endswith("/load_lora_adapter"):
                loaded.set()

        server.behave = behave
        with pytest.raises(RolloutError, match=r"within 0\.5 nats a token"):
            say(attacker, [[b"dddd"], [b"eeee"]])
    assert answered.is_set()
    assert before == own.calls.replies.spending("default").tokens_out
    server.behave = server.answer
    own.close()


def test_another_base_model_is_found_where_the_first_draw_is_one_token(attacker, tmp_path):
    silent = GenerationConfiguration(max_new_tokens=6, min_new_tokens=0)
    keys = [[word(seed) for seed in range(400)]]
    [found] = attacker.continuations(contexts_of(attacker)[:1], keys, silent)
    seed = [len(each.token_ids) for each in found.utterances].index(1)
    with played_vllm() as server:

        def agree_at_first(told):
            numbers = told["choices"][0]["logprobs"]["token_logprobs"]
            numbers[1:] = [each - 5.0 for each in numbers[1:]]
            return told

        server.answered = agree_at_first
        own = speaker(server, attacker, tmp_path, concurrency=1)
        with pytest.raises(RolloutError, match=r"within 0\.5 nats a token"):
            say(attacker, [[word(2 * seed)], []], silent)
        own.close()


def word(number):
    return number.to_bytes(4, "big")


def test_a_budget_is_spent_to_its_last_call_since_none_is_left_for_evaluations(
    server, attacker, tmp_path
):
    own = speaker(server, attacker, tmp_path, budget={"calls": 3})
    assert 3 == len(say(attacker)[0])
    own.close()
    with pytest.raises(ValueError, match="evaluation_share must be left out for trainer 'vllm'"):
        VllmOptions(base_url=server.url, budget={"evaluation_share": 0.5})


def test_more_barred_ids_than_a_request_may_name_are_refused(server, attacker, tmp_path):
    attacker.barred_ids = tuple(range(100, 1125))
    reason = re.escape("at most 1024 ids that are never said for trainer 'vllm', got 1025")
    with pytest.raises(ConfigurationError, match=reason):
        speaker(server, attacker, tmp_path)


def test_a_server_that_takes_no_adapters_is_told_how_to_start_it(server, attacker, tmp_path):
    def refuse(handler, body, number):
        if handler.path.endswith("load_lora_adapter"):
            handler.give_json({"detail": "Not Found"}, 404)
        else:
            server.answer(handler, body, number)

    server.behave = refuse
    speaker(server, attacker, tmp_path)

    with pytest.raises(RolloutError, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"):
        say(attacker)
    attacker.elsewhere.close()


def test_a_request_says_all_that_a_server_has_defaults_for_and_bars_what_is_not_said(attacker):
    attacker.tokenizer.pad_token_id = 4
    attacker.said_ids, attacker.barred_ids = frozenset(), (3, 5)
    body = sampling(attacker, GenerationConfiguration(max_new_tokens=7, top_k=2, min_p=0.1))
    assert {"3": -100.0, "4": -100.0, "5": -100.0} == body["logit_bias"]
    assert list(attacker.end_ids) == body["stop_token_ids"]
    expected = {"max_tokens": 7, "min_tokens": 1, "temperature": 1.0, "top_k": 2, "top_p": 1.0}
    expected |= {"min_p": 0.1, "repetition_penalty": 1.0, "ignore_eos": True}
    assert expected == {name: body[name] for name in expected}


def test_an_answer_is_kept_as_ids_and_numbers():
    choice = {"token_ids": [5, 2], "finish_reason": "stop"}
    choice["logprobs"] = {"token_logprobs": [-0.5, -1.0]}
    told = {"model": NAME, "choices": [choice], "usage": {"prompt_tokens": 3}}
    kept = read(json.dumps(told).encode(), name=NAME)
    assert [[5, 2], [-0.5, -1.0]] == json.loads(kept.text)
    assert (3, 2, NAME) == (kept.tokens_in, kept.tokens_out, kept.model)
    choice["logprobs"] = {"token_logprobs": [-0.5]}

    with pytest.raises(CallError):
        read(json.dumps(told).encode(), name=NAME)
