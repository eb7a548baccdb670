from each_row import each_row
from tokenizers import processors

from astra_core.conversation import Conversation, Message
from astra_core.models.chat_format import SeparatorFormat
from astra_core.models.template_format import TemplateFormat
from astra_parts.testing import tiny_language_model, tiny_prompts

PROMPT = tiny_prompts(1)[0]


def said(model, *texts, are_sampled=True):
    found = Conversation(PROMPT)
    for index, text in enumerate(texts):
        ids = (*model.encode(text), 0) if are_sampled else ()
        role = "assistant" if index % 2 else "user"
        found = found.say(Message(role, text, ids, model.vocabulary if ids else ""))
    return found


@each_row("separator", [None, "so now"])
@each_row("are_sampled", [True, False])
def test_utterances_are_joined_by_the_separator(separator, are_sampled):
    model = tiny_language_model(separator=separator)
    conversation = said(model, "why", "no", "why not so", are_sampled=are_sampled)
    expected = [
        model.closed_ids(model.encode(text)) for text in (PROMPT.text, "why", "no", "why not so")
    ]
    found = SeparatorFormat(model).rendering(conversation, 64)

    assert tuple(token for own in expected for token in own) == found.token_ids
    start, stop = found.last
    # Of what was sampled no added token counts; of a text the separator belongs to it.
    num_own = 4 if are_sampled else len(expected[-1])
    assert (len(expected[-1]), num_own) == (len(found.token_ids) - start, stop - start)


def test_what_is_too_long_loses_its_oldest_tokens_and_says_how_many():
    model = tiny_language_model()
    conversation = said(model, "why", "no")
    whole = SeparatorFormat(model).rendering(conversation, 64)
    cut = SeparatorFormat(model).rendering(conversation, 3)

    assert (whole.token_ids[-3:], len(whole.token_ids) - 3) == (cut.token_ids, cut.truncated_tokens)


def opened_model(template=None):
    """A byte-level model whose tokenizer puts a token before every text."""
    model = tiny_language_model(vocabulary=None)
    model.tokenizer.add_special_tokens({"bos_token": "<s>"})
    first = model.tokenizer.bos_token_id
    model.tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", first)]
    )
    model.tokenizer.chat_template = template
    return model


@each_row("limit", [1, 2, 5, 9, 64])
def test_the_first_token_of_a_conversation_stays_when_it_is_cut(limit):
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}\n{% endfor %}"
    model = opened_model(template)
    for spoken in (SeparatorFormat(model), TemplateFormat(model)):
        whole, cut = (spoken.rendering(said(model, "why so"), most) for most in (64, limit))
        num_kept = min(limit, len(whole.token_ids))
        opening, rest = cut.token_ids[: limit > 1], cut.token_ids[limit > 1 :]

        assert model.opening_ids[: limit > 1] == opening
        assert whole.token_ids[len(whole.token_ids) - len(rest) :] == rest
        assert (num_kept, len(whole.token_ids) - num_kept) == (
            len(cut.token_ids),
            cut.truncated_tokens,
        )
        start, stop = cut.last
        moved = len(whole.token_ids) - num_kept
        assert (max(whole.last[0] - moved, 1), max(whole.last[1] - moved, start)) == (start, stop)


def test_an_instruction_stays_when_the_conversation_is_cut():
    model = tiny_language_model()
    told = model.closed_ids(model.encode("so bad"))
    conversation = said(model, "why", "no")
    plain = SeparatorFormat(model).rendering(conversation, 64)
    cut = SeparatorFormat(model, told).rendering(conversation, len(told) + 2)

    assert told + plain.token_ids[-2:] == cut.token_ids
    assert len(plain.token_ids) - 2 == cut.truncated_tokens
    assert (
        told + plain.token_ids == SeparatorFormat(model, told).rendering(conversation, 64).token_ids
    )


def test_ids_of_another_tokenizer_are_not_read():
    model, other = tiny_language_model(), tiny_language_model(vocabulary=None)
    theirs, own = said(other, "why"), said(model, "why", are_sampled=False)

    assert SeparatorFormat(model).rendering(theirs, 64) == SeparatorFormat(model).rendering(own, 64)
