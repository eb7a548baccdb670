import json

import pytest
import torch
from each_row import each_row
from played_vllm import LORA, played_vllm

from astra_core.config import GenerationConfiguration
from astra_core.errors import RolloutError
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


def say(attacker):
    contexts = [attacker.closed(attacker.encode(text)) for text in ("why so", "you are")]
    found = attacker.continuations(contexts, KEYS, SHORT)
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


def test_a_server_that_was_started_again_is_given_the_adapters_again(server, attacker, tmp_path):
    first = say_all(server, attacker, tmp_path / "one")
    attacker.elsewhere.close()
    server.start_again()
    second = say_all(server, attacker, tmp_path / "two")
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
        if server.paths.count("completions") >= 3:
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
