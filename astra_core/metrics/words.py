"""What counts as a word: a run of letters and digits, or one letter where nobody writes spaces."""

import regex

UNSPACED = (
    r"[[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
    "\N{KATAKANA-HIRAGANA PROLONGED SOUND MARK}\N{HALFWIDTH KATAKANA-HIRAGANA PROLONGED SOUND MARK}"
    "\N{HALFWIDTH KATAKANA VOICED SOUND MARK}\N{HALFWIDTH KATAKANA SEMI-VOICED SOUND MARK}"
    r"]&&\p{L}]"
)
"""Letters of scripts without spaces between words, a character class of the library ``regex``: each
letter with its marks is a word, so that n-grams of words are n-grams of letters there."""
# What belongs to the letter before it; not the selectors of variants, which follow emoji.
_MARK = r"[[\p{Mn}\p{Mc}]--[\uFE00-\uFE0F]]"
_JOINER = r"[\u200C\u200D]"  # invisible between two letters of one word
UNSPACED_WORD = rf"{UNSPACED}{_MARK}*"
"""A word of these scripts."""


def run_of(letter: str) -> str:
    """The expression for a run of these letters, each with its marks and joiners between them."""
    return rf"{letter}(?:{_JOINER}?[{letter}{_MARK}])*"


_LETTERS = run_of(rf"[[\p{{L}}\p{{N}}_]--{UNSPACED}]")
_WORD = regex.compile(rf"{UNSPACED_WORD}|{_LETTERS}", regex.VERSION1)
WORD_OR_MARK = regex.compile(rf"{UNSPACED_WORD}|{_LETTERS}|[^\w\s]", regex.VERSION1)
"""A word, or a punctuation mark or symbol."""


def words(text: str) -> list[str]:
    """Lower-cased words of a text, punctuation left out."""
    found: list[str] = _WORD.findall(text.lower())
    return found
