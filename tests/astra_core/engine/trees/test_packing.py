"""Packed forests are what the sequences say, and nothing sees what it must not."""

import torch
from each_row import each_row
from hypothesis import example, given, settings, strategies as st

from astra_core.engine.trees.packing import packed_rows

# Few different tokens and short sequences: beginnings are shared, sequences equal or prefixes.
FORESTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=8)
EXAMPLES = {
    "one": [[5]],
    "twins": [[5, 6], [5, 6]],
    "a prefix": [[5, 6, 7], [5], [5, 6]],
    "nothing shared": [[1, 2, 3], [2, 2], [3, 3, 3]],
    "several trees to a row": [[1, 2, 3, 4, 5], [2], [3, 3], [4]],
    "a fork": [[1, 2, 3, 4], [1, 2, 5, 4], [1, 2, 5, 6]],
}


def with_examples(test):
    for sequences in EXAMPLES.values():
        test = example(sequences)(test)
    return settings(max_examples=100, deadline=None, derandomize=True)(given(FORESTS)(test))


def prefixes(sequences):
    return {tuple(own[: end + 1]) for own in sequences for end in range(len(own))}


@with_examples
def test_every_sequence_is_found_in_its_places(sequences):
    packed = packed_rows(sequences, device="cpu")
    ids, positions = packed.input_ids.flatten(), packed.positions.flatten()

    assert packed.places.shape == (len(sequences), max(map(len, sequences)))
    for own, places in zip(sequences, packed.places, strict=True):
        assert own == ids[places[: len(own)]].tolist()
        assert list(range(len(own))) == positions[places[: len(own)]].tolist()
        assert {int(places[0])} >= set(places[len(own) :].tolist())


@with_examples
def test_a_token_sees_itself_and_what_comes_before_it_in_its_sequence(sequences):
    packed = packed_rows(sequences, device="cpu")
    num_rows, width = packed.input_ids.shape
    seen = {}
    for own, places in zip(sequences, packed.places.tolist(), strict=True):
        for end in range(len(own)):
            seen[places[end]] = set(places[: end + 1])
    for place in range(num_rows * width):
        row, column = divmod(place, width)
        keys = packed.visible[row, column].nonzero()[:, 0] + row * width
        # Padding sees itself: a softmax over nothing is NaN.
        assert seen.get(place, {place}) == set(keys.tolist())


@with_examples
def test_what_is_shared_is_there_once_and_rows_are_no_longer_than_the_largest_tree(sequences):
    packed = packed_rows(sequences, device="cpu")
    trees = {}
    for own in prefixes(sequences):
        trees[own[0]] = trees.get(own[0], 0) + 1

    assert len(prefixes(sequences)) == packed.num_tokens
    assert max(trees.values()) == packed.input_ids.shape[1]
    assert packed.input_ids.shape[0] <= len(trees)


def test_small_trees_share_a_row():
    packed = packed_rows(EXAMPLES["several trees to a row"], device="cpu")

    assert packed.input_ids.shape == (2, 5)


@each_row("device", ["cpu", "meta"])
def test_rows_are_where_they_are_asked_for(device):
    packed = packed_rows(EXAMPLES["a fork"], device=device)

    for tensor in (packed.input_ids, packed.positions, packed.visible, packed.places):
        assert tensor.device == torch.device(device)
