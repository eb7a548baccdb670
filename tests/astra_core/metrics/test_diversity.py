import math

import pytest
from each_row import each_row

from astra_core.metrics.diversity import distinct_n, ngrams, self_bleu, unique_fraction, words


def test_words_are_lower_case_without_punctuation():
    assert ["you", "re", "bad", "ok"] == words("You're  BAD -- ok!")


def test_ngrams_are_the_runs_of_a_text():
    assert [("a", "b"), ("b", "c")] == list(ngrams(["a", "b", "c"], 2))
    assert [] == list(ngrams(["a"], 2))


@each_row(
    ("texts", "expected"),
    [([], 0.0), (["a"], 1.0), (["a", "a"], 0.5), (["So bad!", "so  BAD", "so good", "x"], 0.75)],
)
def test_unique_fraction_counts_texts_that_differ_in_more_than_spelling(texts, expected):
    assert expected == unique_fraction(texts)


@each_row(
    ("texts", "n", "expected"),
    [
        ([], 1, 0.0),
        (["a"], 2, 0.0),
        (["a b a b"], 1, 2 / 4),
        (["a b a b"], 2, 2 / 3),
        (["a b", "a b"], 2, 1 / 2),
        (["a b c", "d"], 1, 1.0),
    ],
)
def test_distinct_n_is_the_share_of_different_ngrams(texts, n, expected):
    assert expected == pytest.approx(distinct_n(texts, n))


def test_self_bleu_of_the_same_text_again_and_again_is_one():
    assert pytest.approx(1.0) == self_bleu(["you are so very bad"] * 5)


def test_self_bleu_of_texts_that_share_no_word_is_zero():
    assert self_bleu(["a b c d e", "f g h i j", "k l m n o"]) == 0.0


@each_row("texts", [[], ["you are bad"], ["", ""]])
def test_self_bleu_of_nothing_to_compare_is_zero(texts):
    assert self_bleu(texts) == 0.0


def test_self_bleu_by_hand():
    # "a b c d" against "a b c x": 3 of 4 words, then (matches + 1) / (number + 1): 2 of 3 pairs,
    # 1 of 2 triples, 0 of 1 runs of four. Equal lengths, so no penalty; both texts score the same.
    expected = (3 / 4 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25

    assert expected == pytest.approx(self_bleu(["a b c d", "a b c x"]))


def test_a_shorter_text_pays_the_brevity_penalty():
    # Of "a b" against "a b c d": all precisions are 1, and exp(1 - 4/2). The other way round
    # 2/4, (1+1)/(3+1), (0+1)/(2+1), (0+1)/(1+1).
    expected = (math.exp(-1) + (1 / 2 * 1 / 2 * 1 / 3 * 1 / 2) ** 0.25) / 2

    assert expected == pytest.approx(self_bleu(["a b", "a b c d"]))


def test_a_word_counts_only_as_often_as_it_occurs_in_one_other_text():
    # "a a a" finds two in "a a" of the others, not three: 2/3, (1+1)/(2+1), (0+1)/(1+1), 1. The
    # closest other length is 2, so there is no penalty. Of "a a": 1, 1, 1, 1 and exp(1 - 3/2).
    expected = ((2 / 3 * 2 / 3 * 1 / 2) ** 0.25 + math.exp(-0.5)) / 2

    assert expected == pytest.approx(self_bleu(["a a a", "a a"]))


def test_self_bleu_clips_by_the_highest_count_among_the_others():
    # Counts 3, 2, 1 of one word. The first: two of three may count. The second: all, and of the
    # lengths 3 and 1, equally near, the shorter is taken. The third is half as long as the nearest.
    expected = (2 / 3 + 1.0 + math.exp(1 - 2 / 1)) / 3

    assert expected == pytest.approx(self_bleu(["a a a", "a a", "a"], max_n=1))


def test_self_bleu_is_brief_by_the_nearest_length_and_not_by_the_shortest():
    # Of 4 words and 1, 4 are nearer to 3; of 3 and 1, 3 to 4; of 3 and 4, 3 to 1.
    expected = (math.exp(1 - 4 / 3) + 3 / 4 + math.exp(1 - 3 / 1)) / 3

    assert expected == pytest.approx(self_bleu(["a b c", "a b c d", "a"], max_n=1))


def test_self_bleu_equals_the_comparison_with_all_others_one_by_one():
    texts = ["a b c d e", "a b c", "a b b c d", "e d c b a", "a b c d e", "x", ""]

    def naive(index):
        own, others = words(texts[index]), [words(t) for i, t in enumerate(texts) if i != index]
        total = 0.0
        for n in range(1, 5):
            grams = list(ngrams(own, n))
            clipped = sum(
                min(grams.count(gram), max(list(ngrams(o, n)).count(gram) for o in others))
                for gram in set(grams)
            )
            add = int(n > 1)
            if clipped + add == 0:
                return 0.0
            total += math.log((clipped + add) / (len(grams) + add)) / 4
        closest = min((abs(len(o) - len(own)), len(o)) for o in others)[1]
        return math.exp(total + min(0.0, 1 - closest / len(own)))

    expected = sum(naive(index) for index in range(len(texts))) / len(texts)
    assert expected == pytest.approx(self_bleu(texts))


def test_order_changes_no_figure():
    texts = ["a b c d", "a b", "c d e", "a b c d"]

    for figure in (unique_fraction, self_bleu, lambda t: distinct_n(t, 2)):
        assert figure(texts) == pytest.approx(figure(texts[::-1]))


@each_row(
    ("text", "expected"),
    [
        ("You don't SAY 42_x!", ["you", "don", "t", "say", "42_x"]),
        (
            "na\u00efve \u041f\u0440\u0438\u0432\u0435\u0442",
            ["na\u00efve", "\u043f\u0440\u0438\u0432\u0435\u0442"],
        ),
        ("\u4f60\u597d\uff0cGPT4", ["\u4f60", "\u597d", "gpt4"]),
        ("\u3053\u308c \u30c6", ["\u3053", "\u308c", "\u30c6"]),
        ("\u0e17\u0e35\u0e48", ["\u0e17\u0e35\u0e48"]),
        ("\u0928\u092e\u0938\u094d\u0924\u0947", ["\u0928\u092e\u0938\u094d\u0924\u0947"]),
        ("\uc548\ub155 \uc138\uc0c1", ["\uc548\ub155", "\uc138\uc0c1"]),
        # Not the selectors and joiners of emoji; a joiner between letters is part of their word.
        ("love \u2764\ufe0f \U0001f469\u200d\U0001f4bb 1\ufe0f\u20e3", ["love", "1"]),
        ("\u0634\u0645\u0627\u200c\u0647\u0627", ["\u0634\u0645\u0627\u200c\u0647\u0627"]),
        # Digits of a script without spaces are a number, its punctuation is none of its words.
        ("\u0e52\u0e53 \u0e4f \u17d4", ["\u0e52\u0e53"]),
        ("\u30e9\u30fc\uff8a\uff9f", ["\u30e9", "\u30fc", "\uff8a", "\uff9f"]),
        ("", []),
        ("?!", []),
    ],
)
def test_words_of_scripts_with_and_without_spaces(text, expected):
    assert expected == words(text)
