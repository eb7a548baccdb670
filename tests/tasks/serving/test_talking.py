import json

import pytest
from each_row import each_row

from astra_core.config import AttackerConfiguration, GenerationConfiguration
from astra_core.conversation import Conversation, Message
from astra_core.errors import ConfigurationError
from astra_core.models.attacker_format import attacker_format
from astra_core.models.chat_format import SeparatorFormat
from astra_core.models.utterances import Utterance
from astra_core.rollout import Prompt
from astra_parts.testing import tiny_language_model
from tasks.serving.talking import (
    ServedModel,
    Wanted,
    answer_ids,
    attacker_in,
    conversation_of,
    heard,
)
from tasks.serving.wire import RefusalError

CHAT = [
    {"role": "user", "content": "why so"},
    {"role": "assistant", "content": "you are"},
    {"role": "user", "content": "bad"},
]
SHORT = GenerationConfiguration(max_new_tokens=6)
LINES = "{% for m in messages %}{{ m.content }}{{ '\n' }}{% endfor %}"
TEMPLATE = (
    "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


@pytest.fixture(scope="module")
def speaker():
    return ServedModel(tiny_language_model(0), fingerprint="tiny")


def test_a_chat_is_read_as_in_training(speaker):
    messages = (Message("user", "you are"), Message("assistant", "bad"))
    conversation = Conversation(Prompt.of("why so"), messages)
    read = SeparatorFormat(speaker.model).rendering(conversation, 64).token_ids

    assert read == speaker.heard(CHAT)


def test_a_template_says_how_a_chat_is_read_and_answered():
    model = tiny_language_model(0, vocabulary=None)
    model.tokenizer.chat_template = TEMPLATE
    end = model.tokenizer.eos_token
    ids = answer_ids(model, CHAT, {"role": "assistant", "content": "no"})

    assert model.encode(f"[user]why so{end}[assistant]") == heard(model, CHAT[:1])
    assert (*model.encode("no"), model.tokenizer.eos_token_id) == ids


def test_an_attacker_reads_a_chat_as_it_was_trained_with_its_instruction(tmp_path):
    told = {"format": "template", "template": LINES, "instruction": "Asked: {prompt} Written:"}
    tiny_language_model(0, vocabulary=None).save(tmp_path)
    (tmp_path / "attacker.json").write_text(json.dumps(told))
    served = ServedModel.load(tmp_path, separator=None, is_attacker=True)
    plain = ServedModel.load(tmp_path, separator=None)
    read = served.model.tokenizer.decode(served.heard(CHAT))

    assert "Asked: why so Written:\nyou are\nbad\n" == read
    assert served.heard(CHAT) != plain.heard(CHAT)


def test_an_attacker_s_reasoning_is_not_sent_to_the_target():
    model = tiny_language_model(0, vocabulary=None)
    model.tokenizer.chat_template = TEMPLATE
    reader = attacker_format(model, AttackerConfiguration(format="template"))
    served = ServedModel(model, fingerprint="tiny", attacker=reader)
    ids = model.encode("<think>so</think>why not")
    own = Utterance("", ids, tuple(float(-n) for n in range(len(ids))), has_ended=False)
    found = served._choice(served.heard(CHAT), own, Wanted(SHORT))
    visible = reader.thought(ids).visible_ids

    assert "why not" == found.text
    assert own.logprobs[-len(visible) :] == found.logprobs
    assert len(found.tokens) == len(found.logprobs)


def test_several_agents_are_not_served_as_one_attacker(tmp_path):
    told = {"roles": ["first", "second"], "agents": {"first": {}, "second": {}}}
    (tmp_path / "agents.json").write_text(json.dumps(told))

    with pytest.raises(ConfigurationError, match="must be one attacker, got the agents first, sec"):
        attacker_in(tmp_path)


@each_row(
    "roles", [("assistant",), ("user", "user", "user"), ("user", "assistant"), ("system", "user")]
)
def test_an_attacker_s_chat_begins_with_a_prompt_and_ends_with_a_reply(roles):
    with pytest.raises(RefusalError, match=r"messages must be the prompt \(user\), then the"):
        conversation_of([{"role": role, "content": "so"} for role in roles])


def test_choices_depend_on_seed_and_text_alone(speaker):
    context = speaker.heard(CHAT)

    def say(**changes):
        wanted = Wanted(**{"generation": SHORT, "count": 3, "seed": 1, **changes})
        return [own.text for own in speaker.choices(context, wanted)]

    assert say() == say()
    assert say() != say(seed=2)
    assert say()[:1] == say(count=1)
    assert 3 == len(set(say()))


def test_log_probabilities_are_the_models_own(speaker):
    context = speaker.heard(CHAT)
    (own,) = speaker.choices(context, Wanted(SHORT, seed=6, top=3))
    ids = [speaker.model.encode(token)[0] for token in own.tokens]
    (wanted,) = speaker.model.continuation_logprobs([context], [ids])

    assert own.logprobs == pytest.approx(wanted, abs=1e-5)
    assert [3] * len(ids) == [len(top) for top in own.top]
    likeliest = [dict(top) for top in own.top]
    found = [top.get(token, None) for token, top in zip(own.tokens, likeliest, strict=True)]
    near = [(value, lp) for value, lp in zip(found, own.logprobs, strict=True) if value]
    assert near
    assert [lp for _, lp in near] == pytest.approx([value for value, _ in near], abs=1e-5)


def test_a_stop_text_ends_a_choice_before_it(speaker):
    context = speaker.heard(CHAT)
    (whole,) = speaker.choices(context, Wanted(SHORT, seed=6))
    word = whole.tokens[2]
    (cut,) = speaker.choices(context, Wanted(SHORT, seed=6, stop=(word,)))

    assert "length" == whole.finish
    assert "stop" == cut.finish
    assert whole.text.partition(word)[0] == cut.text
    assert len(cut.tokens) == len(cut.logprobs) < len(whole.tokens)


def test_a_context_that_does_not_fit_is_refused(speaker):
    long = GenerationConfiguration(max_new_tokens=128)
    with pytest.raises(RefusalError, match="maximum context length is 128"):
        speaker.choices(speaker.heard(CHAT), Wanted(long))
