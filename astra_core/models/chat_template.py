"""A tokenizer's chat template, rendered independently of the date.

Some templates write the current date. With it, a conversation that was rolled out yesterday would
not be the one that is resumed today, so such a template always gets the same date.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from itertools import count
from typing import Any

from astra_core.errors import AstraError, ConfigurationError
from astra_core.errors.exception_text import shortened
from astra_core.redaction import masked

DAY = datetime(2025, 1, 1, tzinfo=UTC)
"""The date that a template gets when it asks for the time."""
# Lines of Python, about a second of them; a long conversation takes a hundredth.
_MAX_STEPS = 2_000_000
# Templates, and the roles of messages with which they have ended.
_ended: set[tuple[Any, ...]] = set()
_DIRECTIVES = ("%d", "%-d", "%m", "%-m", "%B", "%b", "%A", "%a", "%Y", "%y", "%H", "%M", "%S")
_FILTERS = "".join(f" | replace('{own}', '{DAY.strftime(own)}')" for own in _DIRECTIVES)
# transformers passes no functions to a template, so the function is part of it. The empty text at
# the end keeps a line break that may follow.
_MACRO = f"{{%- macro strftime_now(form) -%}}{{{{ form{_FILTERS} }}}}{{%- endmacro %}}{{{{ '' }}}}"


def chat_text(
    tokenizer: Any, messages: Sequence[Mapping[str, str]], *, opens_answer: bool = True
) -> str:
    """The messages as the template renders them.

    ``messages``: each with its ``role`` and ``content``.

    Raises what the template raises about these messages, which ``refusal`` tells, and
    ConfigurationError if it does not end.
    """
    template = tokenizer.get_chat_template()
    turns = (template, opens_answer, *(own.get("role") for own in messages))
    # Counting steps makes a rendering five times as long; equal turns end alike.
    with nullcontext() if turns in _ended else _ending():
        text = tokenizer.apply_chat_template(
            [dict(own) for own in messages],
            chat_template=dated(template),
            tokenize=False,
            add_generation_prompt=opens_answer,
        )
    _ended.add(turns)
    return str(text)


def refusal(error: Exception) -> str:
    """What may be shown of a template's error: it comes from elsewhere, and may quote an attack."""
    if isinstance(error, AstraError):
        return str(error)
    syntax: Any = error
    if type(error).__name__ == "TemplateSyntaxError":  # Jinja's has read no conversation yet
        return f"{shortened(str(syntax.message), limit=120)} in its line {syntax.lineno}"
    return f"{type(error).__name__}: {masked(shortened(str(error), limit=120))}"


@contextmanager
def _ending() -> Iterator[None]:
    """Runs the body, which is stopped if it takes too many steps."""
    steps, before = count(), sys.gettrace()

    def trace(*_: Any) -> Any:
        if next(steps) > _MAX_STEPS:
            msg = f"no end after {_MAX_STEPS:,} steps"
            raise ConfigurationError(msg)
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def dated(template: str) -> str:
    """The template itself, or one that uses ``DAY`` where it asks for the time."""
    return f"{_MACRO}{template}" if "strftime_now" in template else template
