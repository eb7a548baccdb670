"""A tokenizer's chat template, rendered independently of the date.

Some templates write the current date. With it, a conversation that was rolled out yesterday would
not be the one that is resumed today, so such a template always gets the same date.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

DAY = datetime(2025, 1, 1, tzinfo=UTC)
"""The date that a template gets when it asks for the time."""
_DIRECTIVES = ("%d", "%-d", "%m", "%-m", "%B", "%b", "%A", "%a", "%Y", "%y", "%H", "%M", "%S")
_FILTERS = "".join(f" | replace('{own}', '{DAY.strftime(own)}')" for own in _DIRECTIVES)
# transformers passes no functions to a template, so the function is part of it. The empty text at
# the end keeps a line break that may follow.
_MACRO = f"{{%- macro strftime_now(form) -%}}{{{{ form{_FILTERS} }}}}{{%- endmacro %}}{{{{ '' }}}}"


def chat_text(
    tokenizer: Any, messages: Sequence[Mapping[str, str]], *, opens_answer: bool = True
) -> str:
    """The messages as the template renders them.

    Args:
        tokenizer: Of transformers, with a chat template.
        messages: Each with its ``role`` and ``content``.
        opens_answer: Adds what comes before the assistant's next message.

    Raises:
        Exception: Whatever the template raises about these messages.
    """
    return str(
        tokenizer.apply_chat_template(
            [dict(own) for own in messages],
            chat_template=dated(tokenizer.get_chat_template()),
            tokenize=False,
            add_generation_prompt=opens_answer,
        )
    )


def dated(template: str) -> str:
    """The template itself, or one that uses ``DAY`` where it asks for the time."""
    return f"{_MACRO}{template}" if "strftime_now" in template else template
