"""A tokenizer's chat template, rendered independently of the date.

Some templates write the current date. With it, a conversation that was rolled out yesterday would
not be the one that is resumed today, so such a template always gets the same date.
"""

import os
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from astra_core.errors import AstraError, ConfigurationError
from astra_core.errors.exception_text import shorten
from astra_core.redaction import mask

DAY = datetime(2025, 1, 1, tzinfo=UTC)
"""The date that a template gets when it asks for the time."""
_MAX_SECONDS, _MAX_MEMORY = 10, 1 << 30  # a long conversation takes a hundredth of a second
_ends: dict[tuple[Any, ...], bool] = {}  # by template and roles: equal turns end alike
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
    render = partial(
        tokenizer.apply_chat_template,
        [dict(own) for own in messages],
        chat_template=dated(template),
        tokenize=False,
        add_generation_prompt=opens_answer,
    )
    if turns not in _ends:
        _ends[turns] = _ends_in_copy(render)
    if not _ends[turns]:
        msg = f"no end within {_MAX_SECONDS} s and {_MAX_MEMORY >> 30} GiB"
        raise ConfigurationError(msg)
    return str(render())


def refusal(error: Exception) -> str:
    """What may be shown of a template's error: it comes from elsewhere, and may quote an attack."""
    if isinstance(error, AstraError):
        return str(error)
    syntax: Any = error
    if type(error).__name__ == "TemplateSyntaxError":  # Jinja's has read no conversation yet
        return f"{shorten(str(syntax.message), limit=120)} in its line {syntax.lineno}"
    return f"{type(error).__name__}: {mask(shorten(str(error), limit=120))}"


def _ends_in_copy(render: Callable[[], object]) -> bool:
    """Whether a copy of this process renders: nothing inside it can stop 9 ** (9 ** 9)."""
    if child := os.fork():
        return os.waitpid(child, 0)[1] == 0
    try:
        # Python runs a handler only after the operation, which may never end.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_MAX_SECONDS)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = min({used + _MAX_MEMORY, hard} - {resource.RLIM_INFINITY})
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        render()
    except MemoryError:
        os._exit(1)
    finally:  # whatever else it raises, the process itself meets as well
        os._exit(0)


def dated(template: str) -> str:
    """The template itself, or one that uses ``DAY`` where it asks for the time."""
    return f"{_MACRO}{template}" if "strftime_now" in template else template
