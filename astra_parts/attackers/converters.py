"""Other spellings of a text, such as an encoding that a filter of words does not read.

Source:
    Wei, Haghtalab and Steinhardt, arXiv:2307.02483: encodings as attacks.
"""

import base64
import codecs
from collections.abc import Callable, Mapping
from types import MappingProxyType

_LEET = str.maketrans("aeiostAEIOST", "431057431057")


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _hex(text: str) -> str:
    return text.encode().hex(" ")


def _rot13(text: str) -> str:
    return codecs.encode(text, "rot13")


def _leetspeak(text: str) -> str:
    return text.translate(_LEET)


def _spaced(text: str) -> str:
    return " ".join(text)


def _reversed(text: str) -> str:
    return text[::-1]


CONVERTERS: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {
        "base64": _base64,
        "hex": _hex,
        "rot13": _rot13,
        "leetspeak": _leetspeak,
        "spaced": _spaced,
        "reversed": _reversed,
    }
)
"""By name; equal texts have equal spellings."""
