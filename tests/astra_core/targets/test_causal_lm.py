from dataclasses import replace

import pytest
import torch
from each_row import each_row

from astra_core.config import GenerationConfiguration, SystemConfiguration
from astra_core.conversation import Conversation, Message
from astra_core.errors import ConfigurationError
from astra_core.models.utterances import Continuations, Utterance
from astra_core.registry import build
from astra_core.target import Surroundings
from astra_core.targets.causal_lm import CausalLM, as_target, speaker_of
from astra_parts.testing import tiny_language_model, tiny_prompts

SHORT = GenerationConfiguration(max_new_tokens=6)
CONFIG = SystemConfiguration(max_context_tokens=32, probe=SHORT, response=SHORT)
KEYS = [[b"a" * 16, b"b" * 16], [b"c" * 16, b"d" * 16]]


def asked(*, model=None):
    texts = ("you are bad", "why so")
    ids = [model.closed_ids(model.encode(text)) if model else () for text in texts]
    vocabulary = model.vocabulary if model else ""
    return [
        Conversation(prompt).say(Message("user", text, own, vocabulary))
        for prompt, text, own in zip(tiny_prompts(2), texts, ids, strict=True)
    ]


def test_an_answer_is_what_the_model_says_after_what_was_said():
    model = tiny_language_model(3)
    target = CausalLM.of(model, CONFIG)
    answers = target.respond(asked(model=model), KEYS, SHORT)
    for conversation, own, answer in zip(asked(model=model), KEYS, answers, strict=True):
        context = model.closed_ids(model.encode(conversation.prompt.text))
        probe = conversation.messages[0].token_ids
        (plain,) = model.continuations([context + probe], [own], SHORT)

        assert [u.token_ids for u in plain.utterances] == [r.token_ids for r in answer.replies]
        assert (context, probe) == (answer.heard.context_ids, answer.heard.probe_ids)
        (expected,) = model.continuation_logprobs([context], [probe])
        assert expected == pytest.approx(answer.probe_logprobs, abs=1e-4)


def test_a_written_reply_ends_unless_it_is_cut_at_the_limit():
    model = tiny_language_model()
    target = CausalLM.of(model, CONFIG)
    ids = model.encode("you are bad why so")

    assert model.closed_ids(ids) == target.spoken("you are bad why so", SHORT)
    cut = GenerationConfiguration(max_new_tokens=len(ids))
    assert ids == target.spoken("you are bad why so", cut)


def test_text_alone_is_encoded_and_says_the_same():
    model = tiny_language_model(3)
    target = CausalLM.of(model, CONFIG)
    told, read = (target.respond(asked(model=own), KEYS, SHORT) for own in (model, None))

    assert [own.replies for own in told] == [own.replies for own in read]


def test_a_reply_says_whose_ids_it_has_and_why_it_ended():
    model = tiny_language_model(3)
    replies = CausalLM.of(model, CONFIG).respond(asked(), KEYS, SHORT)[0].replies

    for reply in replies:
        assert model.vocabulary == reply.vocabulary
        ended = reply.token_ids[-1] in model.end_ids
        assert ("stop" if ended else "length") == reply.finish_reason


def test_a_folder_is_loaded_and_named_by_its_weights(tmp_path):
    for seed in (3, 4):
        tiny_language_model(seed).save(tmp_path / str(seed))
    one, other = (
        build("target", CONFIG.target, surroundings=Surroundings(CONFIG, tmp_path / name))
        for name in ("3", "4")
    )

    assert one.holds(tmp_path / "3")
    assert not one.holds(tmp_path / "4")
    assert one.digest() != other.digest()


def test_without_weights_it_says_what_is_missing():
    with pytest.raises(ConfigurationError, match=r"must have the weights of models\.target"):
        build("target", CONFIG.target, surroundings=Surroundings(CONFIG))


def test_a_language_model_is_a_target_of_its_own():
    model = tiny_language_model(3)
    target = as_target(model, CONFIG)

    assert model is speaker_of(target)
    assert target is as_target(target, CONFIG)
    assert ("cpu", True) == (target.works_on, target.can_score)


def test_the_oldest_tokens_are_cut_off_to_fit():
    model = tiny_language_model(3)
    long = replace(tiny_prompts(1)[0], text=" ".join(["so"] * 60))
    (answer,) = CausalLM.of(model, CONFIG).respond(
        [Conversation(long).say(Message("user", "why so"))], KEYS[:1], SHORT
    )

    assert 32 == answer.usage.tokens_in


CHAT = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def chat_target(*, template=CHAT, **options):
    model = tiny_language_model(3, vocabulary=None, max_positions=256)
    model.tokenizer.chat_template = template
    config = SystemConfiguration(max_context_tokens=200, probe=SHORT, response=SHORT)
    surroundings = Surroundings(config, language_model=model)
    return CausalLM(CausalLM.Options(**options), surroundings=surroundings)


def read_by(target):
    (ids,) = (target.heard(own, SHORT).token_ids for own in asked()[:1])
    return target.language_model.decode(ids)


def test_the_format_is_the_separator_s_unless_the_template_is_asked_for():
    assert "<user>" not in read_by(chat_target())
    assert "<user>you are bad;<assistant>" == read_by(chat_target(format="template"))
    assert read_by(chat_target(format="auto")) == read_by(chat_target(format="template"))
    plain = chat_target(template=None)
    assert read_by(plain) == read_by(chat_target(template=None, format="auto"))


def test_system_prompt_and_seed_reach_the_model():
    told = chat_target(format="template", system_prompt="be kind")
    opened = chat_target(format="template", seed="opening")

    assert "<system>be kind;<user>you are bad;<assistant>" == read_by(told)
    assert f"<user>{asked()[0].prompt.text}\n\nyou are bad;<assistant>" == read_by(opened)


def test_a_system_prompt_needs_a_template():
    with pytest.raises(ValueError, match="system_prompt must be null when format is 'separator'"):
        CausalLM.Options(system_prompt="be kind")


def test_what_a_user_would_see_is_the_reply(monkeypatch):
    def thinks(model, contexts, keys, *_, **__):
        ids = model.encode("[so]no")
        said = Utterance("[so]no", ids, (-1.0,) * len(ids), has_ended=True)
        return [Continuations((said,) * len(own), ()) for own in keys]

    monkeypatch.setattr(type(chat_target().language_model), "continuations", thinks)
    shown = chat_target(format="template", think_tags=("[", "]"))
    (answer, _) = shown.respond(asked(), KEYS, SHORT)

    assert {("no", "so")} == {(reply.text, reply.thinking) for reply in answer.replies}
    (answer, _) = chat_target(format="template").respond(asked(), KEYS, SHORT)
    assert {("[so]no", "")} == {(reply.text, reply.thinking) for reply in answer.replies}


def test_options_are_part_of_the_digest(tmp_path):
    model = tiny_language_model(3, vocabulary=None)
    model.tokenizer.chat_template = CHAT
    model.save(tmp_path)
    digests = {
        CausalLM(CausalLM.Options(**own), surroundings=Surroundings(CONFIG, tmp_path)).digest()
        for own in ({}, {"format": "template"}, {"format": "template", "seed": "opening"})
    }

    assert 3 == len(digests)


@each_row("dtype", ["bfloat16", "float16"])
def test_half_precision_weights_answer_and_are_no_reference(tmp_path, dtype):
    tiny_language_model(3).save(tmp_path)
    around = Surroundings(CONFIG, tmp_path)
    half = CausalLM(CausalLM.Options(dtype=dtype), surroundings=around)
    whole = CausalLM(CausalLM.Options(), surroundings=around)
    (found, _), (expected, _) = (own.respond(asked(), KEYS, SHORT) for own in (half, whole))

    assert getattr(torch, dtype) == half.language_model.model.dtype
    assert found.probe_logprobs != expected.probe_logprobs
    assert found.probe_logprobs == pytest.approx(expected.probe_logprobs, abs=0.3)
    assert (True, False) == (whole.holds(tmp_path), half.holds(tmp_path))
    assert half.digest() != whole.digest()
    with half.remembering(1 << 20):
        assert 2 == len(half.respond(asked(), KEYS, SHORT))


def test_a_device_map_spreads_the_weights_and_needs_accelerate(tmp_path, monkeypatch):
    tiny_language_model(3).save(tmp_path)
    options = CausalLM.Options(device_map="auto")
    # Where accelerate places the weights, machine.device does not; here that is the processor.
    spread = CausalLM(options, surroundings=Surroundings(CONFIG, tmp_path, device="meta"))

    assert "cpu" == spread.works_on
    assert not spread.holds(tmp_path)
    monkeypatch.setattr("astra_core.targets.causal_lm.find_spec", lambda _: None)
    with pytest.raises(ValueError, match="null without the package accelerate"):
        CausalLM.Options(device_map="auto")
