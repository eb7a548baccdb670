"""Rarefied figures against every subsample there is, and their errors."""

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from each_row import each_row

from astra_core.errors import DataError
from astra_core.seeding import derive_key, generator
from astra_parts.metrics.rarefaction import (
    expected_distinct_share,
    expected_entropy,
    expected_kinds,
    top_share,
)

COUNTS = (4, 2, 1, 1)
ITEMS = [kind for kind, count in enumerate(COUNTS) for _ in range(count)]


def mean_over_subsamples(figure, size):
    values = [figure(Counter(chosen)) for chosen in combinations(ITEMS, size)]
    return math.fsum(values) / len(values)


def entropy(counts):
    total = counts.total()
    return -sum(count / total * math.log(count / total) for count in counts.values())


@each_row("size", [1, 2, 3, 5, 8])
def test_expectations_are_the_means_over_every_subsample(size):
    assert mean_over_subsamples(len, size) == pytest.approx(expected_kinds(COUNTS, size))
    assert mean_over_subsamples(entropy, size) == pytest.approx(
        expected_entropy(COUNTS, size), abs=1e-12
    )


def test_known_numbers():
    # Of 4 + 2 + 1 + 1 items two are drawn: C(8, 2) = 28 pairs, 6 + 1 of one kind.
    assert expected_kinds(COUNTS, 2) == pytest.approx(2 - 7 / 28)
    assert expected_entropy((3, 3), 6) == pytest.approx(math.log(2))
    assert expected_entropy((7,), 3) == 0.0
    assert expected_kinds((5, 0), 3) == pytest.approx(1.0)


def test_the_share_of_distinct_items_is_the_ratio_of_expectations():
    texts = [["a", "b"], ["a", "b"], ["a", "c", "c"]]
    pairs = [texts[i] + texts[j] for i, j in combinations(range(3), 2)]
    distinct = sum(len(set(pair)) for pair in pairs) / 3
    total = sum(len(pair) for pair in pairs) / 3

    assert expected_distinct_share(texts, 2) == pytest.approx(distinct / total)
    assert expected_distinct_share([[], []], 2) == 0.0


def test_no_figure_depends_on_the_order_of_a_set():
    """It differs from process to process, and with it the last digits of a sum."""
    rng = generator(derive_key(1, "orders"))
    texts = [rng.integers(60, size=8).tolist() for _ in range(40)]
    shares = {
        expected_distinct_share([texts[i] for i in rng.permutation(40)], 7) for _ in range(20)
    }

    assert 1 == len(shares)


def test_draws_repeat_themselves_and_follow_the_seed():
    counts = [20, 15, 9, 4]

    assert top_share(counts, seed=1) == top_share(counts, seed=1)
    assert top_share(counts, seed=1) != top_share(counts, seed=2)


@each_row("size", [0, 9, -1])
def test_a_size_that_cannot_be_drawn_is_an_error(size):
    for figure in (expected_kinds, expected_entropy):
        with pytest.raises(DataError, match=f"must be of 1 to 8 items, got {size}"):
            figure(COUNTS, size)


def test_the_top_share_is_that_of_a_half_that_did_not_choose_it():
    assert [1.0, 1.0] == [top_share(counts, seed=0) for counts in ((1,), (7,))]
    # Four of nine are drawn, of which at most one is of the second kind.
    assert top_share((8, 1), seed=0) == pytest.approx(8 / 9, abs=0.02)
    assert [1 / 8, 1 / 24] == [
        top_share((each,) * kinds, seed=0) for each, kinds in ((1, 8), (9, 24))
    ]


@each_row("num_hits, num_kinds", [(50, 24), (400, 24), (50, 10), (400, 2)])
def test_the_top_share_of_even_kinds_is_theirs_whatever_the_number_of_hits(num_hits, num_kinds):
    """As the largest of the counts it was .10 for 24 kinds in 50 hits."""
    rng = generator(derive_key(num_hits, "even", num_kinds))
    drawn = [rng.multinomial(num_hits, [1 / num_kinds] * num_kinds) for _ in range(12)]
    mean = math.fsum(top_share(counts, seed=0) for counts in drawn) / 12

    assert mean == pytest.approx(1 / num_kinds, abs=0.02)


def test_the_halves_are_those_that_the_seed_names():
    counts = np.array([6, 3])
    first = generator(derive_key(3, "rarefaction")).multivariate_hypergeometric(
        counts, 4, size=2000
    )
    # Of two each the top is both, with the mean of what is left.
    is_top = first == first.max(axis=1, keepdims=True)
    left = ((counts - first) * is_top).sum(axis=1) / is_top.sum(axis=1)

    assert left.mean() / 5 > 0.5
    assert left.mean() / 5 == pytest.approx(top_share((6, 3), seed=3), abs=1e-12)


def test_no_more_texts_are_drawn_than_there_are():
    with pytest.raises(DataError, match="of 1 to 2 items, got 3; draw fewer"):
        expected_distinct_share([["a"], ["b"]], 3)


def test_a_single_kind_has_an_entropy_of_plain_zero():
    assert ["0.0", "0.0"] == [str(expected_entropy([5], size)) for size in (1, 3)]


def test_kinds_without_an_item_count_for_nothing():
    assert expected_kinds([3, 2], 2) == pytest.approx(expected_kinds([3, 0, 2], 2))
    assert expected_entropy([3, 2], 2) == pytest.approx(expected_entropy([3, 0, 2], 2))
