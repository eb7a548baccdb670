from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from each_row import each_row
from job_service import client_of, served

from astra_parts.testing import tiny_language_model
from tasks.serving.inference import Speakers, add_inference
from tasks.serving.wire import RefusalError, make_app

CHAT = [{"role": "user", "content": "why so"}]


@pytest.fixture(scope="module")
def openai():
    import openai  # takes a second

    return openai


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_language_model(0).save(folder)
    app = make_app("test", token=None)
    add_inference(app, Speakers(lambda: {"tiny": folder}))
    with served(app) as address:
        yield address


def say(client, **more):
    asked = {"model": "tiny", "messages": CHAT, "max_tokens": 6, "seed": 1, **more}
    return client.chat.completions.create(**asked)


@pytest.mark.real
def test_the_unmodified_client_lists_and_chats(url):
    client = client_of(url)
    found = say(client, n=2, logprobs=True, top_logprobs=2)

    assert ["tiny"] == [own.id for own in client.models.list()]
    assert "tiny" == client.models.retrieve("tiny").id
    assert 2 == len(found.choices)
    assert 2 == len(found.choices[0].logprobs.content[0].top_logprobs)
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
    assert found.system_fingerprint.startswith("astra-")


def test_completions_take_several_prompts(url):
    asked = {"model": "tiny", "max_tokens": 4, "seed": 1, "logprobs": 1}
    both = client_of(url).completions.create(prompt=["why so", "you are"], **asked)
    alone = client_of(url).completions.create(prompt="you are", **asked)

    assert [0, 1] == [own.index for own in both.choices]
    assert alone.choices[0].text == both.choices[1].text
    assert 4 == len(alone.choices[0].logprobs.token_logprobs)


def test_clients_at_once_get_what_each_would_get_alone(url):
    seeds = range(8)
    client = client_of(url)
    alone = [say(client, seed=seed).choices[0].message.content for seed in seeds]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda seed: say(client_of(url), seed=seed), seeds))

    assert alone == [own.choices[0].message.content for own in together]
    assert len(set(alone)) > 4


def test_temperature_zero_takes_the_likeliest(url):
    client = client_of(url)
    texts = {say(client, seed=seed, temperature=0).choices[0].message.content for seed in (1, 2)}

    assert 1 == len(texts)


def test_a_stream_has_the_same_text(url):
    client = client_of(url)
    pieces = [own.choices[0].delta.content for own in say(client, stream=True)]

    assert say(client).choices[0].message.content == "".join(pieces)


@each_row(
    ("extra", "param"),
    [
        ({"tools": []}, "tools"),
        ({"logit_bias": {}}, "logit_bias"),
        ({"presence_penalty": 1}, "presence_penalty"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"max_tokens": 1000}, "messages"),
        ({"max_tokens": 10**9}, "max_tokens"),
    ],
)
def test_what_is_not_offered_is_refused(url, extra, param, openai):
    with pytest.raises(openai.BadRequestError) as refused:
        say(client_of(url), extra_body=extra)

    assert param == refused.value.param.split(".")[0]


def test_an_unknown_model_and_no_json_are_errors_of_the_interface(url, openai):
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        say(client_of(url), model="other")

    assert 400 == httpx.post(f"{url}/chat/completions", content=b"[").status_code


def test_a_model_that_cannot_be_loaded_is_told_to_the_client(tmp_path):
    model = tiny_language_model(0)
    model.tokenizer.eos_token = None
    model.model.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)

    with pytest.raises(RefusalError, match=r"'mute' cannot be served: system\.separator must"):
        Speakers(lambda: {"mute": tmp_path}).speaker("mute")
