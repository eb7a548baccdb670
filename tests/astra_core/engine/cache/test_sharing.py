from each_row import each_row

from astra_core.engine.cache.sharing import best_prefixes, stem_costs


@each_row(
    ("contexts", "num_rows", "costs"),
    [
        # Alone, with one row or several that continue from it.
        ([[1, 2, 3]], [1], [3 + 10]),
        ([[1, 2, 3]], [3], [3 + 3 * 10]),
        ([[1, 2, 3], [4]], [3, 1], [3 + 30, 1 + 10]),
        # What two begin with is shared out among them; the end of each is every row's own.
        ([[1, 2, 3, 4, 5], [1, 2, 3, 4, 6, 7]], [1, 1], [2 + 1 + 10, 2 + 2 + 10]),
        # The longest common prefix is not the one that saves most.
        (
            [[1, 1, 1, 1, 2, 3], [1, 1, 1, 1, 2, 4], [1, 1, 1, 1], [1, 1, 1, 1, 5]],
            [1] * 4,
            [13, 13, 11, 12],
        ),
        # Every row would have a ninth of what all share and its context's end, or a third of that.
        ([[1] * 9 + [2], [1] * 9 + [3], [4]], [3, 3, 1], [3 * 13, 3 * 13, 11]),
        ([], [], []),
    ],
)
def test_a_prefix_costs_its_rows_one_cache_together(contexts, num_rows, costs):
    assert costs == stem_costs(contexts, num_rows, 10)


def test_of_two_prefixes_the_one_counts_by_which_more_is_saved():
    told, same = [7] * 8, [7] * 8 + [5]

    # All begin with eight tokens, two of them with nine.
    assert [(8, 4)] * 4 == best_prefixes([[*told, 1], [*same, 2], [*same, 3], told], [1] * 4)
    # Rows of one context share it whole.
    assert [(9, 20), (0, 1)] == best_prefixes([[*told, 1], [8] * 9], [20, 1])
