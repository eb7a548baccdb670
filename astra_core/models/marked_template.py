"""A conversation rendered by a chat template, with a mark in the place of each message.

It needs only the tokenizer, so a template that rejects a conversation is found before weights load.
"""

from collections.abc import Sequence
from typing import Any

from astra_core.errors import ConfigurationError
from astra_core.models.chat_template import chat_text, refusal
from astra_core.models.control_tokens import control_ids

# Characters for private use, which no text of a conversation has.
_OPEN, _CLOSE = "\ue0a5", "\ue0a6"
_ROLES = ("user", "assistant", "user")


def mark(number: int) -> str:
    """The mark of message ``number``, counted from 0."""
    return f"{_OPEN}{number}{_CLOSE}"


def marked_turns(tokenizer: Any, *, system: str | None, where: str) -> str:
    """Two messages and a third of the user, as the template renders them around their marks.

    ``system``: the system prompt; None for none.

    Raises ConfigurationError if there is no template, or it refuses a system prompt or turns.
    """
    if not tokenizer.chat_template:
        msg = (
            f"{where}.format must be 'separator' for a tokenizer without a "
            "chat template, got 'template'; name a chat model"
        )
        raise ConfigurationError(msg)
    turns = [(role, mark(number)) for number, role in enumerate(_ROLES)]
    return render(tokenizer, turns, system=system, where=where)


def turn_end(tokenizer: Any) -> int | None:
    """The control token with which the template ends an answer; None where it has none."""
    if not tokenizer.chat_template:
        return None
    control = control_ids(tokenizer)
    messages = [{"role": role, "content": mark(n)} for n, role in enumerate(_ROLES)]
    # As it ends a conversation; some templates end an earlier answer in another way.
    for turns, opens in ((messages[:2], False), (messages, True)):
        try:
            text = chat_text(tokenizer, turns, opens_answer=opens)
        except Exception:  # noqa: BLE001 - a template may raise anything
            return None
        after = text[text.find(mark(1)) + len(mark(1)) :]
        ids = tokenizer(after, add_special_tokens=False)["input_ids"]
        end = next((index for index in ids if index in control), None)
        if end is not None and mark(1) in text:
            return int(end)
    return None


def line_ends(tokenizer: Any, *, system: str | None, where: str) -> frozenset[int]:
    """The tokens that hold what an own template puts behind a message, such as a line end.

    Some tokenizers have tokens of a full stop and a line end.

    Raises ConfigurationError if the template puts nothing there, or refuses a conversation.
    """
    text = marked_turns(tokenizer, system=system, where=where)
    after = text[text.index(mark(1)) + len(mark(1)) : text.index(mark(2))]
    if not after:
        msg = (
            f"{where}.template must put a text behind an assistant's message, got none; add a line "
            "end"
        )
        raise ConfigurationError(msg)
    ids = tokenizer(after, add_special_tokens=False)["input_ids"]
    if not ids:  # to this tokenizer a line end is nothing
        return frozenset()
    piece = tokenizer.convert_ids_to_tokens(ids[0])
    return frozenset(index for token, index in tokenizer.get_vocab().items() if piece in token)


def spoken_ids(tokenizer: Any, tags: Sequence[str]) -> frozenset[int]:
    """The control tokens that an answer has before its text: the template's own, and some tags."""
    said = [{"role": role, "content": mark(n)} for n, role in enumerate(_ROLES[:2])]
    try:
        opened = chat_text(tokenizer, said[:1])
        whole = chat_text(tokenizer, said, opens_answer=False)
    except Exception:  # noqa: BLE001 - a template may raise anything
        opened = whole = ""
    before = whole[len(opened) : whole.find(mark(1))] if whole.startswith(opened) else ""
    ids = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (before, *tags))
    return control_ids(tokenizer).intersection(index for own in ids for index in own)


def render(
    tokenizer: Any, turns: Sequence[tuple[str, str]], *, system: str | None, where: str
) -> str:
    """Roles and contents as the template renders them; every content has the mark of its number.

    Raises ConfigurationError if the template refuses them, leaves one out or repeats it.
    """
    text, reason = _render(tokenizer, turns, system)
    if not reason:
        return text
    msg = f"{where}: the chat template must take a conversation"
    if system is None:
        msg += f", got {reason}; set {where}.format to 'separator'"
    elif _render(tokenizer, turns, None)[1]:  # the system prompt alone is not what it refuses
        msg += f", got {reason}; set {where}.format to 'separator', {where}.system_prompt to null"
    else:
        msg += f" with a system prompt, got {reason}; set {where}.system_prompt to null"
    raise ConfigurationError(msg)


def _render(
    tokenizer: Any, turns: Sequence[tuple[str, str]], system: str | None
) -> tuple[str, str]:
    """The text, and what is wrong with it; an empty text where the template refuses."""
    told = [("system", system)] if system is not None else []
    messages: list[Any] = [{"role": r, "content": c} for r, c in (*told, *turns)]
    try:
        text = chat_text(tokenizer, messages)
    except Exception as error:  # noqa: BLE001 - a template may raise anything
        return "", refusal(error)
    if [text.count(mark(number)) for number in range(len(turns))] != [1] * len(turns):
        return text, "a text that leaves messages out or repeats them"
    return text, ""
