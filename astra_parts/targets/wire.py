"""Requests to an OpenAI-compatible server, and the meaning of its answers."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from astra_core.config import GenerationConfiguration
from astra_core.conversation import Conversation
from astra_core.errors.exception_text import excerpt, shorten
from astra_core.redaction import mask
from astra_core.rollout.prompt import fill_slots
from astra_parts.targets.calls import CallError, about_tokens
from astra_parts.targets.kept import MOST_TOKENS, Kept

_FINISH = {"length": "length", "max_tokens": "length", "content_filter": "filter"}
_WAITS = {408, 409, 425, 429}
# These statuses are about the key or the model's name, not about the conversation.
_OF_THE_KEY = {401, 402, 403, 404}
_WORDS = ("message", "detail", "error")
_CODES = ("type", "code", "param")
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,40}|\d{3}")
# Of a message these may be shown where the conversation lacks them: max_tokens, 4096.
_PARAMETER = re.compile(r"\b(?:[a-z]+(?:_[a-z]+)+|\d{1,7})\b")
_STARTS = {
    b"<": "; it is a page: base_url most often ends in /v1",
    b"data:": "; it is a stream, which is not read: let extra ask for none",
}


def messages_of(
    conversation: Conversation, *, system_prompt: str | None, opens: bool
) -> list[dict[str, str]]:
    """The conversation as the messages of a chat.

    ``system_prompt``: the target's system prompt, with slots for columns; None for none.
    """
    messages = [{"role": each.role, "content": each.text} for each in conversation.messages]
    if opens and messages and conversation.prompt.text:
        first = messages[0]
        messages[0] = {**first, "content": f"{conversation.prompt.text}\n{first['content']}"}
    if system_prompt is None:
        return messages
    told = fill_slots(system_prompt, conversation.prompt)
    return [{"role": "system", "content": told}, *messages]


def sampling(generation: GenerationConfiguration) -> dict[str, Any]:
    """The sampling settings by their common names; those that OpenAI lacks only if they are set."""
    body: dict[str, Any] = {"temperature": generation.temperature, "top_p": generation.top_p}
    if generation.top_k:
        body["top_k"] = generation.top_k
    if generation.min_p:
        body["min_p"] = generation.min_p
    if generation.repetition_penalty != 1.0:
        body["repetition_penalty"] = generation.repetition_penalty
    if generation.min_new_tokens > 1:
        body["min_tokens"] = generation.min_new_tokens
    return body


def call_error(
    status: int, headers: Mapping[str, str], content: bytes, *, sent: str | None = None
) -> CallError:
    """The meaning of an answer that is not a success.

    ``sent``: what it may quote, of which nothing is shown; None masks every word.
    """
    reason = _reason(content, is_plain=status in _OF_THE_KEY, sent=sent)
    words = f"the server answers {status}{reason}"
    if status in _WAITS or status >= 500:
        kind = "rate_limited" if status == 429 else "server"
        return CallError(kind, words, wait_s=_wait_s(headers.get("retry-after", "")))
    if "max_tokens" in reason:
        words += "; see max_tokens_name"
    if status in {401, 403}:
        words += "; key_env or key_file must name the server's key"
    if status == 404:
        words += "; base_url most often ends in /v1, and model is as the server calls it"
    if 300 <= status < 400:
        words = f"the server answers {status}, and redirects are not followed"
    return CallError("refused", words, is_final=True)


def read(content: bytes, *, api: str, tags: Sequence[str], prompt: str) -> Kept:
    """The reply in an answer, without its reasoning.

    Args:
        api: ``chat`` or ``completions``.
        tags: The tags that open and close reasoning in a text; empty for none.
        prompt: The request's text, to estimate its tokens if the answer has no count.

    Raises CallError if there is no reply in it.
    """
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError) as error:
        start = content.lstrip()
        way = next((_STARTS[each] for each in _STARTS if start.startswith(each)), "")
        words = f"the answer is no JSON ({type(error).__name__} in {len(content)} bytes){way}"
        raise CallError(kind="malformed" if content.strip() else "empty", words=words) from error
    if not isinstance(answer, dict):
        raise CallError(
            kind="malformed", words=f"the answer is {type(answer).__name__}, not a JSON object"
        )
    if answer.get("error"):
        raise CallError(
            kind="server", words=f"the server answers 200 with an error{_reason(content)}"
        )
    choice = _choice(answer)
    told = _message(choice) if api == "chat" else choice
    finish = _FINISH.get(str(choice.get("finish_reason")), "stop")
    text, thinking = _text_and_thinking(told, "content" if api == "chat" else "text", finish)
    shown, thought = without_thinking(text, tags)
    return Kept(
        shown,
        thought or thinking,
        "filter" if told.get("refusal") else finish,
        *_tokens(answer, prompt, text),
        model=_model(answer),
    )


def without_thinking(text: str, tags: Sequence[str]) -> tuple[str, str]:
    """The part of a text that a user would see, and the reasoning before it.

    If reasoning was cut off before its end, there is nothing to see.
    """
    if len(tags) != 2:
        return text, ""
    opened, closed = tags
    before, found, rest = text.partition(opened)
    if not found:
        # Some templates put the opening tag into the prompt.
        thought, found, shown = text.partition(closed)
        return (shown.lstrip("\n"), thought) if found else (text, "")
    thought, _, shown = rest.partition(closed)
    return before + shown.lstrip("\n"), thought


def _text_and_thinking(told: Mapping[str, Any], name: str, finish: str) -> tuple[str, str]:
    """What was said and, where it has a field or a part of its own, the reasoning before it."""
    thinking = _join(told.get("reasoning_content") or told.get("reasoning") or "")
    content = told.get(name)
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict)]
        thinking = thinking or "".join(_join(part.get("thinking")) for part in parts)
        said = [part for part in parts if isinstance(part.get("text"), str)]
        content = _join(said) if said or thinking else None
    content = content if content is not None else told.get("refusal")
    # Reasoning was cut off, or a filter removed the reply: a user sees nothing.
    content = "" if content is None and (thinking or finish == "filter") else content
    if not isinstance(content, str):
        calls = " but calls of tools" if told.get("tool_calls") else ""
        raise CallError(kind="empty", words=f"the answer has no text{calls}")
    return content, thinking


def _join(told: Any) -> str:
    """A text, or the texts of a list of parts."""
    parts = told if isinstance(told, list) else [told]
    texts = (part.get("text") if isinstance(part, dict) else part for part in parts)
    return "".join(text for text in texts if isinstance(text, str))


def _choice(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices:
        raise CallError(kind="empty", words="the answer has no choices")
    if not isinstance(choices[0], dict):
        raise CallError(kind="malformed", words="the answer's choice is no JSON object")
    return choices[0]


def _message(choice: Mapping[str, Any]) -> Mapping[str, Any]:
    message = choice.get("message")
    if not isinstance(message, dict):
        raise CallError(kind="malformed", words="the answer's choice has no message")
    return message


def _tokens(answer: Mapping[str, Any], prompt: str, text: str) -> tuple[int, int]:
    """Tokens read and written, as the server counts them, or an estimate."""
    usage = answer.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    num_read = token_count(usage.get("prompt_tokens"), prompt)
    return num_read, token_count(usage.get("completion_tokens"), text)


def token_count(count: Any, text: str) -> int:
    """The count that an answer gives for a text, if it is one; else an estimate."""
    return count if type(count) is int and 0 <= count < MOST_TOKENS else about_tokens(text)


def _model(answer: Mapping[str, Any]) -> str:
    """The model and its build, as far as the answer names them."""
    parts = [answer.get("model"), answer.get("system_fingerprint")]
    return " ".join(excerpt(part).strip("'") for part in parts if isinstance(part, str) and part)


def _reason(content: bytes, *, is_plain: bool = False, sent: str | None = None) -> str:
    """The server's error message, masked where it may quote the request."""
    try:
        error = json.loads(content)
    except (ValueError, RecursionError):
        return ""
    error = error.get("error", error) if isinstance(error, dict) else error
    told = error if isinstance(error, dict) else {"message": error}
    codes = [told[name] for name in _CODES if _CODE.fullmatch(str(told.get(name, "")))]
    words = next((each for each in map(told.get, _WORDS) if isinstance(each, str)), "")[:400]
    parts = [*map(str, codes), words if is_plain else _mask_words(words, sent)]
    return f" ({shorten(', '.join(filter(None, parts)), limit=160)})" if any(parts) else ""


def _mask_words(words: str, sent: str | None) -> str:
    """The words masked, but for parameters and numbers that are no part of what was sent."""
    plain = " ".join(words.split())
    shown = mask(plain)
    if sent is None or len(shown) != len(plain):
        return shown
    own = _letters(sent)
    for found in _PARAMETER.finditer(plain):
        if _letters(found[0]) not in own:
            shown = shown[: found.start()] + found[0] + shown[found.end() :]
    return shown


def _letters(text: str) -> str:
    return re.sub(r"[\W_]", "", text).lower()


def _wait_s(header: str) -> float:
    """Seconds of a Retry-After header, which is a number or a date; 0 without one."""
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return 0.0
