from each_row import each_row
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from astra_core.conversation import Conversation, Message
from astra_core.models.chat_template import chat_text
from astra_core.models.continued import continued_ids, leading
from astra_core.models.template_format import TemplateFormat
from astra_core.rollout import Prompt
from astra_core.testing import tiny_language_model

# What comes after an utterance is no special token here, and begins with no space.
ALPACA = (
    "{% for m in messages %}{{ '### Instruction:' if m.role == 'user' else '### Response:' }}\n"
    "{{ m.content }}\n\n{% endfor %}{% if add_generation_prompt %}### Response:\n{% endif %}"
)
TEXTS = "why are you so", "no, never", "you said it"
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
        found = found.said(Message(role, text, ids, model.vocabulary if ids else ""))
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

    assert ("\n", "") == (leading(model), leading(tiny_language_model(3, vocabulary=None)))
    first, behind = model.encode("so"), continued_ids(model, "so")
    tokens = [model.tokenizer.convert_ids_to_tokens(list(ids)) for ids in (first, behind)]
    assert [True, False] == ["▁" in own[0] for own in tokens]
    assert "so" == model.decode(continued_ids(model, "so"))
    assert () == continued_ids(model, "")
