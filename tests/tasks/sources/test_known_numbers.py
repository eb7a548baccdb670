import numpy as np
from each_row import each_row

from tasks.sources.known_numbers import KnownNumbers


def known_after(batches):
    known, first = KnownNumbers(), 0
    for batch in batches:
        numbers = np.array(batch, np.uint64)
        known.add(numbers, np.arange(first, first + numbers.size))
        first += numbers.size
    return known


@each_row("size", [1, 7, 300])
def test_a_number_is_found_in_its_row_whatever_the_batches(size):
    numbers = np.random.default_rng(0).permutation(np.arange(1000, dtype=np.uint64) * 2**50)
    known = known_after(numbers[first : first + size] for first in range(0, 1000, size))

    assert list(range(1000)) == known.rows(numbers).tolist()
    assert [-1, -1] == known.rows(np.array([1, 2**64 - 1], np.uint64)).tolist()


def test_nothing_is_known_at_first():
    known = known_after([[]])

    assert [-1] == known.rows(np.array([3], np.uint64)).tolist()
    assert [] == known.rows(np.array([], np.uint64)).tolist()
