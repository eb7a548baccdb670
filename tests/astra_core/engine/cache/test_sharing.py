from each_row import each_row

from astra_core.engine.cache.sharing import (
    Continued,
    best_prefixes,
    families,
    held_tokens,
    stem_batches,
)


def a_context(length, num_rows, place=None):
    return Continued((0,) * length, (b"",) * num_rows, place=place)


def cut(rows, budget, *, room=10, takes_stems=True):
    return stem_batches(rows, room=room, budget=budget, takes_stems=takes_stems)


@each_row(
    ("rows", "held", "takes_stems"),
    [
        # Alone, with one row or several that continue from it.
        ([a_context(30, 1)], 30 + 10, True),
        ([a_context(30, 4)], 30 + 4 * 10, True),
        ([a_context(30, 4)], 4 * 40, False),
        # Rows are as long as the longest; too few siblings are worth no stem.
        ([a_context(30, 1), a_context(20, 1)], 2 * 40, True),
        ([a_context(30, 2), a_context(20, 1)], 3 * 40, True),
        # Two continue from one beginning; or from one each, which saves nothing.
        ([a_context(30, 1, ("a", 0, 25)), a_context(30, 1, ("a", 0, 25))], 25 + 2 * (5 + 10), True),
        ([a_context(30, 1, ("a", 0, 25)), a_context(30, 1, ("b", 0, 25))], 2 * 40, True),
        ([a_context(30, 3, ("a", 0, 25))] * 2, 25 + 6 * (5 + 10), True),
        # Of so short a beginning the whole contexts are forked instead.
        ([a_context(30, 3, ("a", 0, 5))] * 2, 2 * 30 + 6 * 10, True),
        ([a_context(30, 1, ("a", 0, 5))] * 2, 5 + 2 * (25 + 10), True),
    ],
)
def test_a_batch_holds_what_its_cache_will(rows, held, takes_stems):
    every = [*range(len(rows))]

    assert [every] == [sorted(own) for own in cut(rows, held, takes_stems=takes_stems)]
    assert len(rows) == len(cut(rows, held - 1, takes_stems=takes_stems))


def test_families_stay_together_and_batches_are_about_equal():
    rows = [a_context(22 + at, 1, ("ab"[at % 2], 0, 20)) for at in range(8)]
    found = cut(rows, 20 + 4 * 19)

    assert [[0, 2, 4, 6], [1, 3, 5, 7]] == sorted(map(sorted, found))
    even = cut([a_context(10, 1)] * 9, 5 * 20)
    assert [5, 4] == [len(own) for own in even]
    assert [] == cut([], 10)


def test_of_two_prefixes_the_one_counts_by_which_more_is_saved():
    told, same = [7] * 8, [7] * 8 + [5]

    # All begin with eight tokens, two of them with nine.
    assert [(8, 4)] * 4 == best_prefixes([[*told, 1], [*same, 2], [*same, 3], told])
    # Equal contexts share all; what is alone shares nothing.
    assert [(9, 2), (0, 1), (9, 2)] == best_prefixes([[*told, 1], [8] * 9, [*told, 1]])


def with_beginnings(beginnings, *, count):
    """Contexts that differ from others of their beginning in the last token alone."""
    ends = range(1000, 1000 + count)
    return [Continued([*own, end], (b"",)) for end in ends for own in beginnings]


def groups_of(rows, most, *, room=4, takes_stems=True):
    return families(rows, room=room, budget=5000, most=most, takes_stems=takes_stems)


TWENTY = [[first] * 20 for first in range(20)]
NESTED = [[7] * 20 + [first] * 10 for first in range(20)]


@each_row(
    ("beginnings", "takes_stems", "size"),
    [(TWENTY, True, 20), (NESTED, True, 10), (NESTED, False, 30)],
)
def test_beginnings_that_cannot_all_be_kept_are_grouped_with_all_that_begin_so(
    beginnings, takes_stems, size
):
    rows = with_beginnings(beginnings, count=3)
    # A reading leaves room for one more token.
    stem = len(beginnings[0]) - size
    found = groups_of(rows, stem + 6 * (size + 1), takes_stems=takes_stems)

    assert [[at, at + 20, at + 40] for at in range(20)] == [
        group[n : n + 3] for group in found for n in range(0, len(group), 3)
    ]
    assert [18, 18, 18, 6] == [len(own) for own in found]


@each_row(
    ("rows", "most", "room"),
    [
        # They fit, also behind one instruction; nothing is shared; none can be kept; so long
        # replies make further passes dear.
        (with_beginnings(TWENTY, count=3), 20 * 21, 4),
        (with_beginnings(NESTED, count=3), 20 + 20 * 11, 4),
        (with_beginnings(TWENTY, count=1), 100, 4),
        (with_beginnings(TWENTY, count=3), 19, 4),
        (with_beginnings(TWENTY, count=3), 21, 400),
        ([], 10, 4),
    ],
)
def test_all_are_one_group_where_groups_save_nothing(rows, most, room):
    assert [list(range(len(rows)))] == groups_of(rows, most, room=room)


def test_what_is_held_is_as_long_as_the_longest_and_a_common_beginning_once():
    uneven = sorted([*TWENTY[:3], [9] * 50])

    assert [10 * 21, 4 * 51, 0] == [
        held_tokens(own, takes_stems=True) for own in (TWENTY[:10], uneven, [])
    ]
    assert [20 + 20 * 11, 20 * 31] == [
        held_tokens(NESTED, takes_stems=takes_stems) for takes_stems in (True, False)
    ]
