"""What counts as a word: a run of letters and digits, or one letter where nobody writes spaces."""

import regex

UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
"""Scripts without spaces between words, for a character class of the library ``regex``: each letter
with its marks is a word, so that n-grams of words are n-grams of letters there."""
_WORD = regex.compile(rf"[{UNSPACED}]\p{{M}}*|[\w\p{{M}}--[{UNSPACED}]]+", regex.VERSION1)


def words(text: str) -> list[str]:
    """Lower-cased words of a text, punctuation left out."""
    found: list[str] = _WORD.findall(text.lower())
    return found
