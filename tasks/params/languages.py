"""The languages that params.yaml can name, and the scripts that each is written in."""

from types import MappingProxyType
from typing import Annotated

from pydantic import AfterValidator

_IN_LATIN = (
    "af az br bs ca cs cy da de en eo es et eu fi fr fy ga gl ha hr ht hu id ig is it jv la lb lt "
    "lv mg ms mt nl no om pl pt qu ro sk sl so sq sv sw tl tr uz vi xh yo zu"
)
_IN_OTHERS = {
    ("ARABIC",): "ar fa ps ug ur",
    ("ARMENIAN",): "hy",
    ("BENGALI",): "as bn",
    ("CJK",): "zh",
    ("CJK", "HANGUL"): "ko",
    ("CJK", "HIRAGANA", "KATAKANA"): "ja",
    ("CYRILLIC",): "be bg kk ky mk mn ru tg uk",
    ("CYRILLIC", "LATIN"): "sr",
    ("DEVANAGARI",): "hi mr ne sa",
    ("ETHIOPIC",): "am",
    ("GEORGIAN",): "ka",
    ("GREEK",): "el",
    ("GUJARATI",): "gu",
    ("GURMUKHI",): "pa",
    ("HEBREW",): "he",
    ("KANNADA",): "kn",
    ("KHMER",): "km",
    ("LAO",): "lo",
    ("MALAYALAM",): "ml",
    ("MYANMAR",): "my",
    ("ORIYA",): "or",
    ("SINHALA",): "si",
    ("TAMIL",): "ta",
    ("TELUGU",): "te",
    ("THAI",): "th",
}
SCRIPTS = MappingProxyType(
    {
        language: frozenset(scripts)
        for scripts, languages in {("LATIN",): _IN_LATIN, **_IN_OTHERS}.items()
        for language in languages.split()
    }
)
"""The scripts of each language, by Unicode's names; languages by their code of ISO 639-1."""


def _check_language(language: str) -> str:
    if language not in SCRIPTS:
        msg = "must be a code of ISO 639-1 such as en, de or zh"
        raise ValueError(msg)
    return language


Language = Annotated[str, AfterValidator(_check_language)]
"""A language that has its scripts above."""
