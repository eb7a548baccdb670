"""Which language and which script a text is in, for projects that name their languages.

The language is found by py3langid, a maintained form of langid.py (Lui and Baldwin, ACL 2012),
whose weights come with the package. It can be unsure about a short text; such a text then passes.
"""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from tasks.params.languages import SCRIPTS

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

# The detector would read every byte, but knows the language long before the end.
_READ_CHARACTERS = 1000
# So many texts show the languages of all; a language of fewer than one in twenty is a mistake or an
# exception.
_READ_TEXTS, _LEAST_SHARE = 500, 0.05
# A listed language counts only if its probability is at least this share of the likeliest's.
_UNLIKELY = 0.01


def other_language(text: str, languages: Sequence[str]) -> float:
    """How sure the detector is, in [0, 1], that a text is in a language that is not listed.

    It is 0 if the likeliest language is listed, or a listed one more than a hundredth as likely.
    """
    ranked = _detector().rank(text[:_READ_CHARACTERS])
    likely = {str(language): float(probability) for language, probability in ranked}
    best = max(likely, key=likely.__getitem__)
    listed = max(likely.get(language, 0.0) for language in languages)
    return likely[best] if listed < _UNLIKELY * likely[best] else 0.0


def languages_of(texts: Sequence[str]) -> frozenset[str]:
    """The languages of at least one in twenty texts, as codes of ISO 639-1."""
    read = texts[:: len(texts) // _READ_TEXTS + 1]
    found = Counter(str(_detector().classify(text[:_READ_CHARACTERS])[0]) for text in read)
    return frozenset(own for own, count in found.items() if count >= _LEAST_SHARE * len(read))


def foreign_letters(text: str, languages: Sequence[str]) -> float:
    """The share of a text's letters in no script of these languages; 0 without letters."""
    own = frozenset[str]().union(*(SCRIPTS[language] for language in languages))
    letters = [letter for letter in text if letter.isalpha()]
    foreign = sum(_script(letter) not in own for letter in letters)
    return foreign / len(letters) if letters else 0.0


@cache
def _script(letter: str) -> str:
    """The first word of a letter's Unicode name, such as LATIN; styled forms have another word."""
    return unicodedata.name(letter, "").partition(" ")[0].partition("-")[0]


@cache
def _detector() -> "LanguageIdentifier":
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
