import pytest

from astra_core.rewards.known_words import KnownWords, KnownWordsOptions, whole_words, words_of
from astra_core.rollout import Prompt
from astra_core.testing import tiny_language_model, tiny_system

SYSTEM = tiny_system()


def known(**options):
    words = KnownWords(KnownWordsOptions(**options))
    words.learn(SYSTEM, [Prompt.of("Zebras don't fly", {"goal": "a quagga"})])
    return words


@pytest.mark.parametrize("word", ["zebras", "don't", "fly", "quagga", "garden"])
def test_words_of_prompts_goals_and_grammar_are_known(word):
    assert word in known()


def test_an_invented_word_is_not_unless_it_is_named():
    assert "gluzzle" not in known()
    assert "gluzzle" in known(extra_words=("Gluzzle",))


def test_a_small_vocabulary_is_known_on_request_only():
    # "worse" is a word of the tiny tokenizer.
    found = {way: "worse" in known(vocabulary=way) for way in ("auto", "used", "unused")}

    assert {"auto": False, "used": True, "unused": False} == found


def test_of_subwords_only_those_that_begin_a_word_and_are_letters_count():
    class Subwords:
        def get_vocab(self):
            return {"\u0120kind": 0, "ness": 1, "\u01202nd": 2, "\u2581warm": 3}

    assert ["kind", "warm"] == whole_words(Subwords())
    assert "kind" in whole_words(tiny_language_model().tokenizer)


def test_words_are_letters_in_lower_case():
    assert ["you", "don't", "say", "na\u00efve"] == words_of("You don't SAY 42 _ na\u00efve!!")
