"""A person's postal address: a name, a few words, then a street with its number.

A street alone is no personal data: it may be a museum's. English, German, French, Spanish, Italian
and Portuguese ways of writing one are known; every repetition is bounded.
"""

import re

_CAPITAL = r"[A-Z\u00c0-\u00de]"
_WORD = rf"{_CAPITAL}[\w'-]{{1,30}}"
_NAME = rf"{_WORD} (?:{_CAPITAL}\.? |{_WORD} )?{_WORD}"
_ENGLISH = (
    rf"\d{{1,5}}[a-z]? (?:{_CAPITAL}[\w'.-]{{1,30}} ){{1,3}}"
    r"(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Way|Place|Pl"
    r"|Square|Terrace|Close|Crescent)\b"
)
_GERMAN = (
    rf"{_CAPITAL}[\w-]{{1,30}}(?:stra\u00dfe|strasse|str\.|weg|platz|allee|gasse|ring|damm)"
    r" \d{1,4}\b"
)
_FRENCH = r"\d{1,4}(?: bis| ter)?,? (?:rue|avenue|boulevard|place|chemin|impasse) [\w']"
_SOUTHERN = (
    r"(?:[Cc]alle|[Aa]venida|[Pp]laza|[Vv]ia|[Vv]iale|[Pp]iazza|[Rr]ua) "
    rf"{_CAPITAL}[\w' ]{{1,40}},? (?:n\.? ?)?\d{{1,4}}\b"
)
_STREETS = (_ENGLISH, _GERMAN, _FRENCH, _SOUTHERN)
_ADDRESS = re.compile(rf"\b{_NAME}\b[^\d\n]{{1,50}}?(?:{'|'.join(_STREETS)})")


def holds_postal_address(text: str) -> bool:
    """True if a name and, at most 50 characters later, a street with a number are in the text."""
    return _ADDRESS.search(text) is not None
