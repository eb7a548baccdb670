"""What no prompt may contain: broken text, template leftovers, personal data.

Every repetition is bounded, so a text of a million characters is searched in linear time.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from tasks.expectations.identifiers import IDENTIFIERS

BROKEN_TEXT = ("control_character", "replacement_character", "template_token")

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


RECOGNISERS: Mapping[str, Callable[[str], bool]] = MappingProxyType(
    {"postal_address": holds_postal_address, **IDENTIFIERS}
)
"""Functions that find what a pattern alone cannot, by the name of the finding."""

PERSONAL_DATA = ("email", "phone", "user_mention", "url", *RECOGNISERS)

_DOMAIN = r"(?:[a-z0-9-]{1,63}\.){1,4}(?:com|org|net|edu|gov|io|info|co\.uk|de|fr)"

# Written like a mention: a decorator or an at-rule of some language, or whatever is called.
_OF_CODE = (
    r"(?!(?:abstractmethod|author|autowired|bean|cache|charset|classmethod|component|contextmanager"
    r"|contextlib|controller|dataclass|decorator|deprecated|entity|extend|font|functools"
    r"|import|include|injectable|interface|jit|keyframes|layer|media|mixin|namespace|override"
    r"|param|property|pytest|return|returns|see|service|since|staticmethod|suppresswarnings"
    r"|supports|tailwind|test|throws|wraps)\b|\w{1,29}(?:\.\w{1,29})*\()"
)

FINDINGS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        # Tab and line ends are text; overrides of the writing direction hide text from a reader.
        "control_character": re.compile(
            r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
        ),
        "replacement_character": re.compile("\ufffd"),
        # Placeholders that were never filled, and control tokens of chat templates.
        "template_token": re.compile(
            r"\{\{[^{}\n]{0,80}\}\}|\{%[^\n]{0,80}%\}|\$\{\w{1,40}\}|\{[A-Za-z_][\w.]{0,40}\}"
            r"|<[A-Z][A-Z0-9_]{2,40}>|%\(\w{1,40}\)s|\[(?:INSERT|YOUR|ENTER)\b[^\[\]\n]{0,60}\]"
            r"|<\|\w{1,40}\|>|</?s>|\[/?INST\]|<</?SYS>>"
        ),
        "email": re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}"),
        # Written in groups or with a country code; a bare run of digits is more often a quantity.
        "phone": re.compile(
            r"(?<![\w.])(?:\(\d{3}\)[ .-]?|\d{3}[ .-])\d{3}[ .-]\d{4}(?![\w.]\d)"
            r"|(?<!\w)\+\d{1,3}[ .-]?(?:\(?\d{1,4}\)?[ ./-]?){2,5}\d{2,4}(?!\w)"
            r"|(?<![\w.])0\d{2,4}[ /-]\d{5,8}(?!\w)"
        ),
        "user_mention": re.compile(
            rf"(?<![\w/])/?u/[\w-]{{3,20}}|(?<![\w@./])@(?i:{_OF_CODE})[A-Za-z_]\w{{1,29}}"
        ),
        "url": re.compile(
            rf"\bh(?:tt|xx)ps?://\S|\bwww\.\w|(?<![\w@.-]){_DOMAIN}(?![\w-])", re.IGNORECASE
        ),
    }
)

# A cheap mark that every match of a slow pattern contains. A text without the mark skips the
# pattern, which takes five to fifty times as long.
_MARKS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "email": re.compile("@"),
        "phone": re.compile(r"\d\d"),
        "user_mention": re.compile("[@/]"),
        "url": re.compile(r"[.:][\w/]"),
        "postal_address": re.compile(r"\d"),
        "card_number": re.compile(r"\d[ \d-]{11}"),
        "iban": re.compile(r"[A-Z]{2}\d\d"),
        "ip_address": re.compile(r"\d\.\d|:[0-9A-Fa-f:]"),
        "national_id": re.compile(r"\d\d"),
    }
)


def holds(finding: str, text: str) -> bool:
    """True if the text contains what the finding's name says."""
    mark = _MARKS.get(finding)
    if mark is not None and mark.search(text) is None:
        return False
    if finding in RECOGNISERS:
        return RECOGNISERS[finding](text)
    return FINDINGS[finding].search(text) is not None
