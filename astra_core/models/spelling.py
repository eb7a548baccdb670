"""The spelling in which a target reads what an attacker says, such as base64."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from astra_core.conversation import Conversation, Message
from astra_core.errors import ConfigurationError, PluginError
from astra_core.extensions.calls import plugin_call
from astra_core.files import file_digest
from astra_core.registry import function_of

SPELLINGS = ("base64", "hex", "rot13", "leetspeak", "spaced", "reversed")
"""Those that have a short name."""


def speller(name: str) -> Callable[[str], str]:
    """The function that spells a text in a spelling with a short name, or of one's own.

    Raises ConfigurationError if there is none.
    """
    is_known = name in SPELLINGS
    if not (is_known or ":" in name):
        msg = (
            f"system.spelling must be one of {', '.join(SPELLINGS)}, or a function as "
            f"my.module:translated, got '{name}'"
        )
        raise ConfigurationError(msg)
    return function_of(f"astra_parts.attackers.converters:to_{name}" if is_known else name)


def spelling_digest(name: str | None) -> str:
    """SHA-256 of the file of a function of one's own; empty for what is none."""
    if name is None or name in SPELLINGS:
        return ""
    code = getattr(inspect.unwrap(speller(name)), "__code__", None)
    file = Path(code.co_filename) if code else None
    return file_digest(file) if file and file.is_file() else ""


def spell_text(text: str, name: str | None) -> str:
    """The text as the target reads it; None leaves it as it was said.

    Raises PluginError if the function failed, or gave no text.
    """
    if name is None:
        return text
    with plugin_call("spelling", name, "a call"):
        found: Any = speller(name)(text)
    if not isinstance(found, str):
        msg = f"spelling '{name}' must give a text, got {type(found).__name__}; correct it there"
        raise PluginError(msg)
    return found


def as_read(conversation: Conversation, name: str | None) -> Conversation:
    """The conversation with all that the attacker said in this spelling."""
    if name is None:
        return conversation
    said = (
        Message("user", spell_text(own.text, name)) if own.role == "user" else own
        for own in conversation.messages
    )
    return replace(conversation, messages=tuple(said))
