"""A user's input, shortened for one line of an error."""

import reprlib
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from astra_core.redaction import without_credentials

LINE_LIMIT = 300
"""Characters of an error's line; about four rows of a terminal."""

_VALUE_LIMIT = 80
_GAP = " ... "


def excerpt(value: Any, *, limit: int = _VALUE_LIMIT) -> str:
    """The value as Python writes it, on one line and cut in its middle; never raises."""
    shape = reprlib.Repr()
    shape.maxstring = shape.maxother = shape.maxlong = limit
    shape.maxlist = shape.maxtuple = shape.maxdict = 6
    shape.maxlevel = 3
    try:
        # Before it is cut: a part of an address would not look like one.
        written = shape.repr(without_credentials(value) if isinstance(value, str) else value)
    except ValueError:
        # Python writes no integer of more than 4,300 digits.
        return "a number of thousands of digits"
    return shortened(written, limit=limit)


def shortened(text: str, *, limit: int = LINE_LIMIT) -> str:
    """The text without line breaks; of a long one the beginning and the end, where the help is."""
    line = without_credentials(" ".join(text.split()))
    if len(line) <= limit:
        return line
    tail = limit // 3
    return line[: limit - tail - len(_GAP)] + _GAP + line[-tail:]


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that was probably meant, whatever its capitals; empty if none is near."""
    by_lower = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[near[0]] if near else ""
