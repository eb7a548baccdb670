"""The spellings of ``astra_core.models.spelling`` that have a short name.

Source:
    Wei, Haghtalab and Steinhardt, arXiv:2307.02483: encodings as attacks.
"""

import base64
import codecs

_LEET = str.maketrans("aeiostAEIOST", "431057431057")


def to_base64(text: str) -> str:
    """Base64 of its UTF-8."""
    return base64.b64encode(text.encode()).decode()


def to_hex(text: str) -> str:
    """Its bytes in UTF-8 as pairs of digits."""
    return text.encode().hex(" ")


def to_rot13(text: str) -> str:
    """Its letters thirteen places on."""
    return codecs.encode(text, "rot13")


def to_leetspeak(text: str) -> str:
    """Digits in the place of letters that look like them."""
    return text.translate(_LEET)


def to_spaced(text: str) -> str:
    """A space between any two characters."""
    return " ".join(text)


def to_reversed(text: str) -> str:
    """Its characters from last to first."""
    return text[::-1]
