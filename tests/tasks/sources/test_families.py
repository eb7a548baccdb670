import random

import numpy as np
from each_row import each_row

from tasks.sources.families import MIN_OVERLAP, FamilyFinder, overlap, word_runs

WORDS = [f"word{number}" for number in range(500)]


def roots_of(texts):
    finder = FamilyFinder()
    finder.add(texts)
    return finder.roots().tolist()


def random_text(rng, num_words=40):
    return " ".join(rng.choices(WORDS, k=num_words))


def test_overlap_is_the_jaccard_index_of_the_word_runs():
    # Runs of three: abc bcd cde against abc bcd cdx, 2 shared of 4.
    one, other = word_runs("a b c d e"), word_runs("A, b! C d x")

    assert 0.5 == overlap(one, other)


def test_case_punctuation_and_spacing_make_a_near_duplicate():
    assert [0, 0] == roots_of(["How do I fix my bike?", "  how do i FIX my bike!! "])


def test_short_texts_are_near_duplicates_only_when_their_words_agree():
    assert [0, 0, 2, 3, 4, 4] == roots_of(["Hello!", "hello", "hi", "😀", "?!", "?!"])


def test_one_changed_word_in_a_long_text_makes_a_near_duplicate():
    rng = random.Random(1)
    texts = [random_text(rng) for _ in range(200)]
    copies = [text.rsplit(" ", 1)[0] + " changed" for text in texts]

    assert [*range(200), *range(200)] == roots_of(texts + copies)


def test_templates_that_differ_in_a_third_of_their_runs_stay_apart():
    # 8 words: 5 of 7 runs are shared, below the limit.
    texts = [f"how do i fix my bike number {number}" for number in range(50)]

    assert overlap(word_runs(texts[0]), word_runs(texts[1])) < MIN_OVERLAP
    assert list(range(50)) == roots_of(texts)


def test_roots_of_earlier_rows_stay_when_rows_are_appended():
    rng = random.Random(2)
    texts = [random_text(rng) for _ in range(100)]
    finder = FamilyFinder()
    finder.add(texts)
    before = finder.roots()
    finder.add([texts[3] + " more", *(random_text(rng) for _ in range(20))])

    np.testing.assert_array_equal(before, finder.roots()[:100])
    assert 3 == finder.roots()[100]


def test_roots_do_not_depend_on_the_batches():
    rng = random.Random(3)
    texts = [random_text(rng, num_words=12) for _ in range(60)]
    texts += [text + " again" for text in texts]
    finder = FamilyFinder()
    for text in texts:
        finder.add([text])

    assert roots_of(texts) == finder.roots().tolist()


@each_row("texts", [[], ["one"]])
def test_roots_of_few_rows_are_the_rows_themselves(texts):
    assert list(range(len(texts))) == roots_of(texts)


def test_texts_longer_than_the_sketch_are_compared_by_estimate():
    rng = random.Random(4)
    long, other = random_text(rng, 5000), random_text(rng, 5000)

    assert [0, 0, 2] == roots_of([long, long + " end", other])
