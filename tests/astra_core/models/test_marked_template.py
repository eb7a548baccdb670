import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from astra_core.models import chat_template
from astra_core.models.marked_template import line_ends, mark, marked_turns, render
from astra_parts.testing import tiny_language_model

PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
FORGETFUL = "{{ messages[-1].content }}"
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"


@pytest.fixture
def tokenizer():
    return tiny_language_model(3).tokenizer


def test_every_message_stands_where_its_mark_is(tokenizer):
    tokenizer.chat_template = PLAIN

    text = marked_turns(tokenizer, system="be brief", where="here")

    expected = f"<system>be brief<user>{mark(0)}<assistant>{mark(1)}<user>{mark(2)}"
    assert expected == text


def test_a_message_ends_with_each_token_that_holds_what_comes_behind_it(tokenizer):
    tokenizer.chat_template = PLAIN.replace("{% endfor", " no {% endfor")
    ends = line_ends(tokenizer, system=None, where="here")

    assert {"no", "now"} == set(tokenizer.convert_ids_to_tokens(list(ends)))
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(ConfigurationError, match=r"here\.template must put a text behind"):
        line_ends(tokenizer, system=None, where="here")


@pytest.mark.real
@each_row(
    ("template", "system", "reason", "way"),
    [
        (None, None, "for a tokenizer without a chat template", "name a chat model"),
        (FORGETFUL, None, "a text that leaves messages out", "set here.format to 'separator'"),
        (
            NO_SYSTEM + PLAIN,
            "be brief",
            "got TemplateError: n· s·····; ",
            "set here.system_prompt to null",
        ),
        (
            FORGETFUL,
            "be brief",
            "a text that leaves messages out",
            "set here.format to 'separator', here.system_prompt to null",
        ),
        (
            "\n{% if so %}{{ a {% endif %}",
            None,
            "got expected token 'end of print statement', got '{' in its line 2",
            "set here.format to 'separator'",
        ),
        (
            "{% for a in range(9**5) %}" * 2 + "{% endfor %}" * 2,
            None,
            "got no end within",
            "'separator'",
        ),
        # One operation each, which nothing inside a process can stop.
        ("{{ 9 ** (9 ** 9) }}", None, "got no end within", "'separator'"),
        ("{{ ('a' * 9**9) | sort | length }}", None, "got no end within", "'separator'"),
        (
            "{{ nothing.at_all }}",
            None,
            "got UndefinedError: 'n······' i· u········",
            "set here.format to 'separator'",
        ),
    ],
)
def test_what_a_template_refuses_is_one_line(tokenizer, template, system, reason, way, monkeypatch):
    monkeypatch.setattr(chat_template, "_MAX_SECONDS", 1)
    tokenizer.chat_template = template

    with pytest.raises(ConfigurationError, match=r"^here") as refusal:
        marked_turns(tokenizer, system=system, where="here")

    assert reason in str(refusal.value)
    assert str(refusal.value).endswith(way)
    assert 1 == len(str(refusal.value).splitlines())


def test_a_template_may_refuse_only_one_order_of_turns(tokenizer):
    tokenizer.chat_template = NO_SYSTEM + PLAIN

    assert "<user>" in render(tokenizer, [("user", mark(0))], system=None, where="here")
