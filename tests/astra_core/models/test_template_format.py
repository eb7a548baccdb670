import pytest
from each_row import each_row
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from astra_core.config import GenerationConfiguration, SystemConfiguration
from astra_core.conversation import Conversation, Message
from astra_core.errors import ConfigurationError
from astra_core.models.chat_template import chat_text
from astra_core.models.control_tokens import continued_ids, leading
from astra_core.models.template_format import TemplateFormat
from astra_core.rollout import Prompt
from astra_core.target import Surroundings
from astra_core.targets.causal_lm import CausalLM
from astra_parts.testing import tiny_language_model

ENDS = "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "[/INST]", "<|end_of_text|>"
STARTS = "<|im_start|>", "<|start_header_id|>", "<|end_header_id|>", "<start_of_turn>", "[INST]"
TAGS = "<think>", "</think>", "<|user|>", "<|assistant|>", "<|system|>"

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QWEN3 = CHATML.replace("{{ m.content }}", "{{ m.content.split('</think>')[-1].lstrip('\n') }}")
LLAMA3 = (
    "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
GEMMA = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}<start_of_turn>"
    "{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
MISTRAL = (
    "{% for m in messages %}{% if m.role == 'assistant' %} {{ m.content }}</s>"
    "{% else %}[INST] {{ m.content }} [/INST]{% endif %}{% endfor %}"
)
PHI = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
ZEPHYR = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
VICUNA = (
    "A chat between a user and an assistant.{% for m in messages %}"
    "{{ ' USER: ' if m.role == 'user' else ' ASSISTANT: ' }}{{ m.content }}"
    "{% if m.role == 'assistant' %}</s>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %} ASSISTANT:{% endif %}"
)
GRANITE = (
    "{% for m in messages %}<|start_of_role|>{{ m.role }}<|end_of_role|>{{ m.content }}"
    "<|end_of_text|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"
)
DEEPSEEK = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}<|User|>{{ m.content }}"
    "{% else %}<|Assistant|>{{ m.content.split('</think>')[-1] }}<|end_of_sentence|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|Assistant|><think>\n{% endif %}"
)
# Since 3.1 a system message with the day comes first.
LLAMA31 = (
    "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
    "Today Date: {% if date_string is defined %}{{ date_string }}{% else %}"
    "{{ strftime_now('%d %b %Y') }}{% endif %}<|eot_id|>" + LLAMA3
)
TEMPLATES = {
    "ChatML": CHATML,
    "Qwen 3": QWEN3,
    "Llama 3": LLAMA3,
    "Gemma": GEMMA,
    "Mistral": MISTRAL,
    "Phi": PHI,
    "Zephyr": ZEPHYR,
    "Vicuna": VICUNA,
    "Granite": GRANITE,
    "DeepSeek R1": DEEPSEEK,
    "Llama 3.1": LLAMA31,
}
TEXTS = ("why are you so", "no, never", "you said it")


def chat_model(template, seed=3, *, kind="llama"):
    model = tiny_language_model(seed, kind=kind, vocabulary=None, max_positions=512)
    model.tokenizer.add_special_tokens({"additional_special_tokens": [*ENDS, *STARTS, *TAGS]})
    model.model.resize_token_embeddings(len(model.tokenizer), mean_resizing=False)
    model.tokenizer.chat_template = template
    return model


def said(model, *texts, are_sampled=True):
    found = Conversation(Prompt.of("they are late"))
    for index, text in enumerate(texts):
        ids = (*model.encode(text), 0) if are_sampled else ()
        role = "assistant" if index % 2 else "user"
        found = found.say(Message(role, text, ids, model.vocabulary if ids else ""))
    return found


def rendered(model, *texts):
    turns = [
        {"role": "assistant" if index % 2 else "user", "content": text}
        for index, text in enumerate(texts)
    ]
    return model.encode(chat_text(model.tokenizer, turns))


@each_row("name", TEMPLATES)
@each_row("are_sampled", [True, False])
def test_spliced_ids_are_those_of_the_rendered_text(name, are_sampled):
    model = chat_model(TEMPLATES[name])
    own = TemplateFormat(model)
    read = [own.rendering(said(model, *TEXTS[:n], are_sampled=are_sampled), 400) for n in (1, 3)]

    assert [rendered(model, *TEXTS[:n]) for n in (1, 3)] == [each.token_ids for each in read]
    for text, each in zip((TEXTS[0], TEXTS[2]), read, strict=True):
        assert text == model.decode(each.token_ids[slice(*each.last)])
    # What opens the reasoning is not there in later turns.
    opened = len(model.encode("<think>\n")) if own.is_opened else 0
    kept = read[0].token_ids[: len(read[0].token_ids) - opened]
    assert kept == read[1].token_ids[: len(kept)]


def test_sampled_ids_are_never_encoded_again():
    model = chat_model(CHATML)
    odd = (*model.encode("no"), *model.encode(" "))
    conversation = said(model, "why").say(Message("assistant", "no", odd, model.vocabulary))
    read = TemplateFormat(model).rendering(conversation.say(Message("user", "so")), 400)

    assert any(odd == read.token_ids[at : at + len(odd)] for at in range(len(read.token_ids)))


def test_system_prompt_and_seed_change_what_is_read():
    model = chat_model(CHATML)
    conversation = said(model, TEXTS[0])
    plain = TemplateFormat(model).rendering(conversation, 400).token_ids
    told = TemplateFormat(model, system="be kind").rendering(conversation, 400).token_ids
    opened = TemplateFormat(model, seed="opening").rendering(conversation, 400).token_ids

    assert told[-len(plain) :] == plain
    assert "be kind" in model.decode(told[: -len(plain)])
    assert "they are late" in model.decode(opened)
    assert "they are late" not in model.decode(plain)


def test_without_a_seed_prompt_nothing_opens_the_first_turn():
    model = chat_model(CHATML)
    asked = Conversation(Prompt.of("")).say(Message("user", "how so"))
    plain, opened = (
        TemplateFormat(model, seed=seed).rendering(asked, 400) for seed in ("hidden", "opening")
    )

    assert plain == opened


def test_a_long_conversation_loses_whole_turns_and_keeps_the_system_prompt():
    model = chat_model(CHATML)
    own = TemplateFormat(model, system="be kind")
    whole, last = (own.rendering(said(model, *texts), 400) for texts in (TEXTS, TEXTS[2:]))
    cut = own.rendering(said(model, *TEXTS), len(whole.token_ids) - 1)

    assert last.token_ids == cut.token_ids
    assert len(whole.token_ids) - len(last.token_ids) == cut.truncated_tokens


@pytest.mark.parametrize(
    "template", [QWEN3, QWEN3 + "{% if add_generation_prompt %}<think>\n{% endif %}"]
)
def test_what_is_written_is_an_answer_without_reasoning(template):
    own = TemplateFormat(chat_model(template))

    assert ("", "no, never") == own.thought(own.written_ids("no, never"))[:2]


def test_reasoning_is_neither_shown_nor_read_again():
    model = chat_model(QWEN3)
    own = TemplateFormat(model)
    ids = model.encode("<think>\nwell\n</think>\n\nno, never")
    thought = own.thought(ids)
    assert ("well", "no, never") == thought[:2]
    reply = Message("assistant", thought.text, ids, model.vocabulary, thought.thinking)
    conversation = said(model, TEXTS[0]).say(reply, Message("user", TEXTS[2]))

    assert rendered(model, *TEXTS) == own.rendering(conversation, 400).token_ids
    assert ("", ()) == own.thought(model.encode("<think>well"))[1:]
    others = TemplateFormat(model, tags=("<|user|>", "<|end|>"))
    assert "" == others.thought(ids).thinking


def test_a_template_that_refuses_is_one_line():
    with pytest.raises(ConfigurationError, match="S····· r··· n·· s········; set system"):
        TemplateFormat(chat_model(GEMMA), system="be kind")
    with pytest.raises(ConfigurationError, match="a tokenizer without a chat template"):
        TemplateFormat(tiny_language_model())
    with pytest.raises(ConfigurationError, match="leaves messages out or repeats them"):
        TemplateFormat(chat_model("{{ messages[-1].content }}"))


def test_the_generation_configuration_ends_a_reply_too():
    model = chat_model(CHATML)
    end = model.tokenizer.convert_tokens_to_ids("<|im_end|>")
    model.model.generation_config.eos_token_id = [0, end]
    TemplateFormat(model)

    assert {0, end} == set(model.end_ids)


@each_row("kind", ["llama", "gpt2"])
def test_what_is_remembered_changes_no_reply_of_a_chat_model(kind):
    short = GenerationConfiguration(max_new_tokens=4)
    config = SystemConfiguration(max_context_tokens=400, probe=short, response=short)
    model = chat_model(CHATML, kind=kind)
    options = CausalLM.Options(format="template", system_prompt="be kind")
    target = CausalLM(options, surroundings=Surroundings(config, language_model=model))
    talks, keys = [said(model, *TEXTS[:n]) for n in (1, 3)], [[b"a" * 16, b"b" * 16]] * 2
    plain = target.respond(talks, keys, short)
    with target.remembering(1 << 22):
        found = [target.respond([talk], keys[:1], short)[0] for talk in talks]

    assert [own.replies for own in plain] == [own.replies for own in found]
    assert [own.usage for own in plain] == [own.usage for own in found]
    for own, talk, answer in zip(plain, talks, found, strict=True):
        assert own.probe_logprobs == pytest.approx(answer.probe_logprobs, abs=1e-4)
        assert len(own.probe_logprobs) == len(talk.messages[-1].token_ids) - 1


# What comes after an utterance is no special token here, and begins with no space.
ALPACA = (
    "{% for m in messages %}{{ '### Instruction:' if m.role == 'user' else '### Response:' }}\n"
    "{{ m.content }}\n\n{% endfor %}{% if add_generation_prompt %}### Response:\n{% endif %}"
)
MARKS = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
BYTES = [f"<0x{number:02X}>" for number in range(256)]


def sentence_piece(scheme):
    """A tiny model whose tokenizer is made as that of Llama 2, Mistral and Phi 3."""
    own = Tokenizer(models.BPE(byte_fallback=True, unk_token=MARKS["unk_token"]))
    own.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=True)
    alone = [*MARKS.values(), *BYTES]
    trainer = trainers.BpeTrainer(vocab_size=330, special_tokens=alone, show_progress=False)
    own.train_from_iterator([*TEXTS, "Instruction Response"] * 9, trainer)
    words = decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()
    own.decoder = decoders.Sequence([*words, decoders.Strip(" ", 1, 0)])
    model = tiny_language_model(3, kind="llama", vocabulary=None, max_positions=512)
    model.tokenizer = PreTrainedTokenizerFast(tokenizer_object=own, **MARKS)
    model.tokenizer.chat_template = ALPACA
    model.end_ids = (2,)
    return model


def conversation(model, *, are_sampled):
    found = Conversation(Prompt.of("they are late"))
    for place, text in enumerate(TEXTS):
        # As it is sampled after a line break: no mark of a new word before it.
        ids = (*model.encode(f"\n{text}")[len(model.encode("\n")) :], 2) if are_sampled else ()
        role = "assistant" if place % 2 else "user"
        found = found.say(Message(role, text, ids, model.vocabulary if ids else ""))
    return found


@each_row("scheme", ["first", "always", "never"])
@each_row("are_sampled", [True, False])
def test_no_word_is_begun_in_the_middle_of_a_conversation(scheme, are_sampled):
    model = sentence_piece(scheme)
    roles = ("user", "assistant", "user")
    turns = [{"role": r, "content": c} for r, c in zip(roles, TEXTS, strict=True)]
    read = TemplateFormat(model).rendering(conversation(model, are_sampled=are_sampled), 400)

    assert model.encode(chat_text(model.tokenizer, turns)) == read.token_ids
    assert TEXTS[2] == model.decode(read.token_ids[slice(*read.last)])


def test_a_text_that_follows_has_no_mark_and_one_that_begins_has():
    model = sentence_piece("first")

    assert ("\n", "") == (
        leading(model.encode),
        leading(tiny_language_model(3, vocabulary=None).encode),
    )
    first, behind = model.encode("so"), continued_ids(model.encode, "so")
    tokens = [model.tokenizer.convert_ids_to_tokens(list(ids)) for ids in (first, behind)]
    assert [True, False] == ["▁" in own[0] for own in tokens]
    assert "so" == model.decode(continued_ids(model.encode, "so"))
    assert () == continued_ids(model.encode, "")
