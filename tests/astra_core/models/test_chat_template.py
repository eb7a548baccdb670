import jinja2
import pytest
from each_row import each_row
from tiny_chats import CHATML, chat_model

from astra_core.models.chat_template import DAY, chat_text

SAID = [{"role": "user", "content": "so"}]


@each_row(
    "asks",
    [
        "{{ strftime_now('%d %b %Y') }}",
        "{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }}{% endif %}",
        "{{ strftime_now('%-d') | replace('1', '01') }} {{ strftime_now('%b %Y') }}",
        "{% set day = strftime_now('%d %b %Y') %}{{ day }}",
    ],
)
def test_a_template_gets_the_same_day_whenever_it_asks(asks):
    tokenizer = chat_model(template=asks + CHATML).tokenizer
    today = tokenizer.apply_chat_template(SAID, tokenize=False)

    assert chat_text(tokenizer, SAID).startswith("01 Jan 2025<|im_start|>user\nso<|im_end|>")
    assert not today.startswith(f"{DAY:%d %b %Y}")


def test_the_answer_is_opened_if_that_is_asked_for():
    tokenizer = chat_model().tokenizer
    spoken = "<|im_start|>user\nso<|im_end|>\n"

    assert f"{spoken}<|im_start|>assistant\n" == chat_text(tokenizer, SAID)
    assert spoken == chat_text(tokenizer, SAID, opens_answer=False)


def test_what_a_template_raises_is_left_to_the_caller():
    tokenizer = chat_model(template="{{ raise_exception('no') }}").tokenizer

    with pytest.raises(jinja2.TemplateError, match="no"):
        chat_text(tokenizer, SAID)
