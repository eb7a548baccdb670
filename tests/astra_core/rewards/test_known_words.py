import random
from functools import cache

from each_row import each_row
from tokenizers import ByteLevelBPETokenizer

from astra_core.rewards.known_words import (
    GRAMMAR_WORDS,
    KnownWords,
    KnownWordsOptions,
    whole_words,
    words_of,
)
from astra_core.rollout import Prompt
from astra_parts.testing import tiny_language_model, tiny_system
from tasks.builtin.dialogue import provocation
from tasks.builtin.lines import ANGER_WORDS, PROVOCATIONS
from tasks.builtin.openers import draw_opener


@cache
def shared_system():
    return tiny_system()


def known(**options):
    words = KnownWords(KnownWordsOptions(**options))
    words.learn(shared_system(), [Prompt.of("Zebras don't fly", {"goal": "a quagga"})])
    return words


@each_row("word", ["zebras", "don't", "fly", "quagga", "garden"])
def test_words_of_prompts_goals_and_grammar_are_known(word):
    assert word in known()


def test_an_invented_word_is_not_unless_it_is_named():
    assert "gluzzle" not in known()
    assert "gluzzle" in known(extra_words=("Gluzzle",))


def test_a_small_vocabulary_is_known_on_request_only():
    # "worse" is a word of the tiny tokenizer.
    found = {way: "worse" in known(vocabulary=way) for way in ("auto", "used", "unused")}

    assert {"auto": False, "used": True, "unused": False} == found


class Vocabulary:
    def __init__(self, *pieces):
        self.pieces = pieces

    def get_vocab(self):
        return {piece: place for place, piece in enumerate(self.pieces)}


def test_of_subwords_only_those_that_begin_a_word_and_are_letters_count():
    subwords = Vocabulary("\u0120kind", "ness", "\u01202nd", "\u2581warm")

    assert ["kind", "warm"] == whole_words(subwords)
    assert "kind" in whole_words(tiny_language_model().tokenizer)


def test_a_vocabulary_that_marks_no_beginnings_is_one_of_words():
    pieces = ("[PAD]", "hello", "world", "##ing", "\u4e00", "\u0301")

    assert ["hello", "world", "\u4e00"] == whole_words(Vocabulary(*pieces))


def test_in_scripts_without_spaces_a_word_begins_anywhere():
    pieces = ("\u2581hi", "ing", "\u2581\u30e9\u30fc", "\u30fc", "\u0301")

    assert ["hi", "\u30e9\u30fc", "\u30fc"] == whole_words(Vocabulary(*pieces))


def test_a_vocabulary_of_bytes_is_read_as_text():
    texts = ["so kind sch\u00f6n \u043f\u0440\u0438\u0432\u0435\u0442 \u4f60\u597d"] * 4
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(texts, vocab_size=400, min_frequency=2)

    found = whole_words(tokenizer)

    assert {"kind", "sch\u00f6n", "\u043f\u0440\u0438\u0432\u0435\u0442"} <= set(found)
    assert {"\u4f60", "\u597d"} <= set(words_of(" ".join(found)))


def test_letters_with_marks_are_one_word_and_letters_without_spaces_are_words():
    assert ["\u0928\u092e\u0938\u094d\u0924\u0947"] == words_of(
        "\u0928\u092e\u0938\u094d\u0924\u0947!"
    )
    assert ["\u4f60", "\u597d", "hi"] == words_of("\u4f60\u597d, hi 3")


def test_emoji_are_no_words():
    assert ["love"] == words_of("love \u2764\ufe0f \U0001f469\u200d\U0001f4bb 1\ufe0f\u20e3")


def test_other_prompts_replace_the_words_of_earlier_ones():
    words = KnownWords(KnownWordsOptions(extra_words=("quux",)))
    words.learn(shared_system(), [Prompt.of("zebras fly")])
    words.learn(shared_system(), [Prompt.of("quaggas run")])

    assert "zebras" not in words
    assert all(word in words for word in ("quaggas", "quux", "garden"))


def test_words_are_letters_in_lower_case():
    assert ["you", "don't", "say", "na\u00efve"] == words_of("You don't SAY 42 _ na\u00efve!!")


def test_every_word_of_openers_and_provocations_is_known_and_none_of_anger():
    rng = random.Random(0)
    openers = [draw_opener(rng) for _ in range(3000)]
    kinds = list(PROVOCATIONS)
    remarks = [provocation(rng.choice(kinds), opener.topic, rng) for opener in openers]
    said = {word for text in [*(own.text for own in openers), *remarks] for word in words_of(text)}

    assert set() == said - GRAMMAR_WORDS
    assert len(said) > 0.8 * len(GRAMMAR_WORDS)
    assert set() == GRAMMAR_WORDS & {word for own in ANGER_WORDS.values() for word in own}
