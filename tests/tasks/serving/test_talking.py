import pytest

from astra_core.config import GenerationConfiguration
from astra_core.conversation import Conversation, Message
from astra_core.models.chat_format import SeparatorFormat
from astra_core.rollout import Prompt
from astra_parts.testing import tiny_language_model
from tasks.serving.talking import ServedModel, Wanted, answered, heard
from tasks.serving.wire import RefusalError

CHAT = [
    {"role": "user", "content": "why so"},
    {"role": "assistant", "content": "you are"},
    {"role": "user", "content": "bad"},
]
SHORT = GenerationConfiguration(max_new_tokens=6)
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
    ids = answered(model, CHAT, {"role": "assistant", "content": "no"})

    assert model.encode(f"[user]why so{end}[assistant]") == heard(model, CHAT[:1])
    assert (*model.encode("no"), model.tokenizer.eos_token_id) == ids


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
