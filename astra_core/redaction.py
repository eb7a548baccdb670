"""Attacks and offensive text are shown masked unless a person asks to see them."""

import re

_WORD = re.compile(r"(\w)(\w+)")


def masked(text: str) -> str:
    """The text with the letters after the first of each word replaced by dots.

    >>> masked("You never listen!")
    'Y·· n···· l·····!'
    """
    return _WORD.sub(lambda match: match[1] + "·" * len(match[2]), " ".join(text.split()))
