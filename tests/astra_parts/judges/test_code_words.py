from itertools import combinations

from astra_parts.judges.code_words import CODE_WORDS
from astra_parts.judges.secret import _folded, _has, _letters


def test_a_word_gives_away_itself_alone():
    for one, other in combinations(CODE_WORDS, 2):
        assert not _has(one, _folded(other)), (one, other)
        assert not {*map(_letters, CODE_WORDS[one])} & {*map(_letters, CODE_WORDS[other])}, one


def test_a_translation_does_not_say_the_word_as_well():
    for word, others in CODE_WORDS.items():
        assert not any(_has(word, _folded(other)) for other in others), word
