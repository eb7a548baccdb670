"""Rows of keys and values, checked against plain lists of what each row was given."""

import gc
import random
import weakref

import torch
from each_row import each_row

from astra_core.engine.cache.key_values import KeyValues

CPU = torch.device("cpu")


class Model:
    """Rows as lists of numbers, beside a cache that is told the same."""

    def __init__(self, num_rows, capacity, *, num_layers=2):
        self.rows = [[] for _ in range(num_rows)]
        self.values = KeyValues(num_layers, [0] * num_rows, capacity)
        self.next = 1.0

    def read(self, counts):
        told = self.values.open(counts, CPU)
        numbers = torch.zeros(told.slots.shape)
        for row, count in enumerate(counts):
            own = [self.next + index for index in range(count)]
            self.next += count
            numbers[row, :count] = torch.tensor(own)
            numbers[row, count:] = -1.0
            self.rows[row] += own
        for index, layer in enumerate(self.values.layers):
            states = (numbers + 0.5 * index)[:, None, :, None].expand(-1, 2, -1, 3)
            keys, values = layer.update(states, -states)
            assert keys.shape == values.shape == (len(counts), 2, told.width, 3)
        self.values.close()
        return told

    def select(self, rows, capacity):
        self.rows = [list(self.rows[row]) for row in rows]
        self.values = self.values.copy_rows(rows, capacity=capacity)

    def fork(self, rows, capacity):
        self.rows = [list(self.rows[row]) for row in rows]
        self.values = self.values.fork(rows, capacity=capacity)

    def check(self):
        assert self.values.totals == [len(row) for row in self.rows]
        found = self.values
        if found.stem is not None:
            pieces = [(found, row, length) for row, length in enumerate(found.totals)]
            found = KeyValues.gather(pieces, capacity=found.capacity + 30)
        for index, layer in enumerate(found.layers):
            for row, own in enumerate(self.rows):
                expected = torch.tensor(own) + 0.5 * index
                for head in range(2):
                    assert torch.equal(expected, layer.keys[row, head, : len(own), 0])
                    assert torch.equal(-expected, layer.values[row, head, : len(own), 2])
            assert bool(layer.keys.isfinite().all())
            assert bool(layer.values.isfinite().all())


@each_row("seed", range(20))
def test_every_row_holds_what_it_was_given_whatever_is_done(seed):
    draw = random.Random(seed)
    own = Model(draw.randint(1, 4), 30)
    own.read([draw.randint(1, 5) for _ in own.rows])
    for _ in range(5):
        if draw.random() < 0.5:
            rows = [draw.randrange(len(own.rows)) for _ in range(draw.randint(1, 5))]
            own.select(rows, capacity=30)
        own.read([draw.randint(0, 2) for _ in own.rows[:-1]] + [1])
        own.check()


@each_row("seed", range(20))
def test_rows_on_a_stem_hold_what_they_were_given_whatever_is_done(seed):
    draw = random.Random(seed)
    own = Model(draw.randint(1, 4), 10)
    own.read([draw.randint(1, 5) for _ in own.rows])
    own.fork([draw.randrange(len(own.rows)) for _ in range(draw.randint(2, 6))], capacity=20)
    own.check()
    for _ in range(4):
        own.read([draw.randint(0, 2) for _ in own.rows[:-1]] + [1])
        own.check()
        if draw.random() < 0.4:
            rows = [draw.randrange(len(own.rows)) for _ in range(draw.randint(1, 6))]
            own.select(rows, capacity=20)
        elif len(own.rows) > 1:
            order = own.values.retire([draw.random() < 0.3 for _ in own.rows[:-1]] + [False])
            own.rows = [own.rows[row] for row in order[: len(own.values.lengths)]]
        own.check()


def test_positions_continue_where_the_prefix_ends():
    own = Model(2, 10)
    own.read([3, 1])
    own.fork([0, 1, 0], capacity=8)

    assert [[3], [1], [3]] == own.read([1, 1, 1]).positions.tolist()
    assert [[4, 5], [2, 2], [4, 4]] == own.read([2, 1, 1]).positions.tolist()
    assert [[3, 4], [2, 3], [2, 3]] == own.read([2, 2, 2]).slots.tolist()


def test_rows_on_a_stem_can_be_cut_within_it():
    own = Model(1, 10)
    own.read([4])
    own.fork([0, 0], capacity=5)
    own.read([2, 2])
    pieces = [(own.values, 1, 3), (own.values, 1, 5), (own.values, 0, 4)]
    expected = Model(3, 9)
    expected.rows = [own.rows[1][:3], own.rows[1][:5], own.rows[0][:4]]
    expected.values = KeyValues.gather(pieces, capacity=9)
    expected.check()


def test_a_fork_copies_nothing_and_counts_what_it_holds_on_to():
    own = Model(2, 10)
    own.read([3, 3])
    stem, held = own.values, own.values.num_bytes
    own.fork([0, 1, 1], capacity=5)

    assert own.values.stem.values is stem
    assert held == own.values.num_bytes
    own.read([1, 1, 1])
    # Two tensors of two layers, three rows, two heads, five slots, three floats.
    assert held + 2 * 2 * 3 * 2 * 5 * 3 * 4 == own.values.num_bytes


def test_a_pass_gets_positions_and_slots():
    own = Model(2, 10)
    told = own.read([3, 1])
    assert ([[0, 1, 2], [0, 0, 0]], False) == (told.positions.tolist(), told.is_even)
    assert [[0, 1, 2], [0, 1, 1]] == told.slots.tolist()
    told = own.read([1, 1])

    assert [[3], [1]] == told.positions.tolist() == told.slots.tolist()
    assert not told.is_even


def test_rows_of_one_length_are_even():
    own = Model(2, 10)

    assert own.read([3, 3]).is_even
    assert own.read([1, 1]).is_even
    assert not own.read([1, 0]).is_even
    assert not own.read([1, 1]).is_even


def test_what_a_row_has_too_many_of_is_written_over():
    own = Model(2, 10)
    own.read([4, 1])
    own.read([1, 3])
    own.check()


def test_has_room_counts_the_slot_behind_the_end():
    own = Model(2, 6)
    own.read([4, 1])

    assert own.values.has_room(1)
    assert not own.values.has_room(2)


def test_rows_of_several_caches_come_together_cut_to_what_is_asked():
    first, second = Model(2, 8), Model(1, 20)
    first.read([5, 2])
    second.next = 100.0
    second.read([7])
    found = KeyValues.gather(
        [(first.values, 0, 3), (second.values, 0, 7), (first.values, 1, 2), (second.values, 0, 0)],
        capacity=9,
    )
    expected = Model(4, 9)
    expected.rows = [first.rows[0][:3], second.rows[0], list(first.rows[1]), []]
    expected.values = found
    expected.check()
    expected.next = 200.0
    expected.read([1, 1, 1, 1])
    expected.check()


def test_a_copy_is_not_changed_by_what_it_was_copied_from():
    own = Model(1, 10)
    own.read([2])
    copy = own.values.copy_rows([0, 0], capacity=10)
    before = copy.layers[0].keys.clone()
    own.read([3])

    assert torch.equal(before, copy.layers[0].keys)
    assert [2, 2] == copy.lengths


def test_the_memory_of_a_cache_is_free_as_soon_as_nobody_needs_it():
    values = KeyValues(2, [0, 0], 4)
    values.open([1, 1], CPU)
    for layer in values.layers:
        layer.update(torch.ones(2, 1, 1, 3), torch.ones(2, 1, 1, 3))
    values.close()
    buffer = weakref.ref(values.layers[0].keys)
    gc.disable()
    try:
        del values, layer
        assert buffer() is None
    finally:
        gc.enable()
