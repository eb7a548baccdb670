import torch
from each_row import each_row

from astra_core.engine.cache.key_values import KeyValues
from astra_core.engine.cache.prefixes import PrefixStore

# Bytes of one slot: keys and values of one layer and head, two floats each.
SLOT = 16


def values_of(*lengths, capacity=None):
    """A cache of rows of these lengths whose keys are the numbers of row and slot."""
    capacity = capacity or max(lengths)
    found = KeyValues(1, [0] * len(lengths), capacity)
    told = found.open(lengths, torch.device("cpu"))
    rows = torch.arange(len(lengths), dtype=torch.float32)[:, None].expand_as(told.slots)
    states = torch.stack([rows, told.slots.float()], dim=2)[:, None]
    found.layers[0].update(states, states)
    found.close()
    return found


def test_a_sequence_is_found_by_all_that_continues_from_it():
    store, values = PrefixStore(10**6), values_of(3, 2)
    store.add(values, [(4, 5, 6), (7, 8)])

    assert (values, 0, 3) == store.find((4, 5, 6, 9), limit=9)
    assert (values, 0, 3) == store.find((4, 5, 6), limit=9)
    assert (values, 1, 2) == store.find([7, 8, 1, 1, 1], limit=9)
    assert store.find((4, 5), limit=9) is None
    assert store.find((5, 6), limit=9) is None
    assert store.find((), limit=9) is None


def test_the_longest_is_taken_and_cut_to_the_limit():
    store, short, long = PrefixStore(10**6), values_of(2), values_of(4)
    store.add(short, [(4, 5)])
    store.add(long, [(4, 5, 6, 7)])

    assert (long, 0, 4) == store.find((4, 5, 6, 7, 8), limit=9)
    assert (long, 0, 2) == store.find((4, 5, 6, 7, 8), limit=2)
    assert (short, 0, 2) == store.find((4, 5, 6, 8), limit=9)
    assert store.find((4, 5, 6, 7, 8), limit=0) is None


@each_row("ids", [(256,), (1, 0), (0,), (65536, 7), (1,)])
def test_ids_are_not_mistaken_for_others_of_the_same_bytes(ids):
    others = {(256,), (1, 0), (0,), (65536, 7), (1,)} - {ids}
    store = PrefixStore(10**6)
    store.add(values_of(len(ids)), [ids])

    for other in others:
        is_prefix = other[: len(ids)] == ids
        assert is_prefix == (store.find(other, limit=9) is not None)


def test_the_oldest_is_forgotten_first_when_memory_runs_out():
    store = PrefixStore(8 * SLOT)
    for first in range(3):
        store.add(values_of(3), [(first, 5, 6)])

    assert [False, True, True] == [
        store.find((first, 5, 6), limit=9) is not None for first in range(3)
    ]


def test_what_was_found_lately_is_not_the_oldest():
    store = PrefixStore(8 * SLOT)
    store.add(values_of(3), [(0, 5, 6)])
    store.add(values_of(3), [(1, 5, 6)])
    store.find((0, 5, 6), limit=9)
    store.add(values_of(3), [(2, 5, 6)])

    assert [True, False, True] == [
        store.find((first, 5, 6), limit=9) is not None for first in range(3)
    ]


def test_what_is_larger_than_the_memory_is_not_kept_and_displaces_nothing():
    store = PrefixStore(4 * SLOT)
    store.add(values_of(4), [(0, 5, 6, 7)])
    store.add(values_of(5), [(1, 5, 6, 7, 8)])

    assert store.find((0, 5, 6, 7), limit=9) is not None
    assert store.find((1, 5, 6, 7, 8), limit=9) is None


def test_bytes_are_those_of_the_buffers():
    assert 2 * 7 * SLOT == values_of(3, 2, capacity=7).num_bytes
    assert 0 == KeyValues(2, [0], 5).num_bytes


def test_a_sequence_known_already_is_kept_once_and_forgotten_with_its_cache():
    store, first = PrefixStore(6 * SLOT), values_of(3)
    store.add(first, [(4, 5, 6)])
    store.add(values_of(3), [(4, 5, 6)])
    assert (first, 0, 3) == store.find((4, 5, 6), limit=9)
    store.add(values_of(6), [(1, 2, 3, 4, 5, 6)])

    assert store.find((4, 5, 6), limit=9) is None
