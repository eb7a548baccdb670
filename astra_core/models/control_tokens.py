"""Tokens that steer a conversation, such as a turn's end: no text spells them, no model says them.

A tokenizer reads ``<|im_start|>`` in any text as its control token. Text of a prompt, a probe or a
reply is therefore broken inside such a word before it is encoded, and each part is encoded alone.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

_BREAK = "\U000f0000"
"""A character for private use, between two parts of a text that are encoded apart."""
_BEFORE = "\n"  # merges with nothing where a mark is put before it: such vocabularies have bytes


def special_ids(tokenizer: Any) -> frozenset[int]:
    """The special ids, which a decoded text does not show.

    Not that of an unknown word, which steers nothing, unless it has another meaning too.
    """
    marked = (index for index, own in tokenizer.added_tokens_decoder.items() if own.special)
    unknown = {tokenizer.unk_token_id} - {tokenizer.bos_token_id, tokenizer.eos_token_id}
    return frozenset({*marked, *tokenizer.all_special_ids} - unknown)


def control_ids(tokenizer: Any) -> frozenset[int]:
    """The special ids, and those of added tokens that the chat template writes."""
    template = tokenizer.chat_template or ""
    source = template if isinstance(template, str) else json.dumps(template)
    written = (
        index
        for index, own in tokenizer.added_tokens_decoder.items()
        # Some tokenizers have spaces and plain words as added tokens.
        if own.content in source and not own.content.isspace() and not own.content.isalnum()
    )
    return special_ids(tokenizer) | frozenset(written)


def unsaid_ids(tokenizer: Any, size: int) -> frozenset[int]:
    """The special ids below ``size``, and those to which the tokenizer gives no token."""
    unknown = {*range(size)} - {*tokenizer.get_vocab().values()}
    return frozenset(index for index in special_ids(tokenizer) | unknown if index < size)


def as_text(tokenizer: Any, text: str, control: frozenset[int]) -> str:
    """The text, for ``encode_text``, with a break inside every word that is one of these tokens."""
    return _BREAK.join(_parts(tokenizer, text.replace(_BREAK, ""), control))


def encode_text(tokenizer: Any, text: str, *, adds_special: bool = False) -> tuple[int, ...]:
    """The ids of a text that may have breaks."""
    first, *others = text.split(_BREAK)
    ids = list(tokenizer(first, add_special_tokens=adds_special)["input_ids"])
    for part in others:
        ids += continued_ids(partial(encode_text, tokenizer), part)
    return tuple(ids)


def continued_ids(encode: Callable[[str], tuple[int, ...]], text: str) -> tuple[int, ...]:
    """The ids that ``encode`` gives the text where it is behind other text."""
    lead = leading(encode)
    before, ids = encode(lead), encode(lead + text)
    return ids[len(before) :] if ids[: len(before)] == before else encode(text)


def leading(encode: Callable[[str], tuple[int, ...]]) -> str:
    """What to put before a text that follows other text; empty where the first is not marked."""
    return _BEFORE if len(encode(_BEFORE)) > 1 else ""


def space_out(tokenizer: Any, text: str, control: frozenset[int]) -> str:
    """The text with a space inside such words, for what cannot be encoded in parts."""
    return as_text(tokenizer, text, control).replace(_BREAK, " ")


def is_broken(text: str) -> bool:
    """True if the text has a break."""
    return _BREAK in text


def _parts(tokenizer: Any, text: str, control: frozenset[int]) -> Iterator[str]:
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    pairs = zip(found["input_ids"], found["offset_mapping"], strict=True)
    spans = [span for index, span in pairs if index in control]
    if not spans:
        yield text
        return
    begin = 0
    for start, stop in spans:
        middle = (start + stop) // 2
        yield from _parts(tokenizer, text[begin:middle], control)
        # Half of a single character is not text: it is left out.
        begin = middle if stop - start > 1 else stop
    yield from _parts(tokenizer, text[begin:], control)
