import random

from astra_core.rewards.grammar_words import GRAMMAR_WORDS
from astra_core.rewards.known_words import words_of
from tasks.builtin.dialogue import provocation
from tasks.builtin.lines import ANGER_WORDS, PROVOCATIONS
from tasks.builtin.openers import draw_opener


def test_every_word_of_openers_and_provocations_is_known_and_none_of_anger():
    rng = random.Random(0)
    openers = [draw_opener(rng) for _ in range(3000)]
    kinds = list(PROVOCATIONS)
    remarks = [provocation(rng.choice(kinds), opener.topic, rng) for opener in openers]
    said = {word for text in [*(own.text for own in openers), *remarks] for word in words_of(text)}

    assert set() == said - GRAMMAR_WORDS
    assert len(said) > 0.8 * len(GRAMMAR_WORDS)
    assert set() == GRAMMAR_WORDS & {word for own in ANGER_WORDS.values() for word in own}
