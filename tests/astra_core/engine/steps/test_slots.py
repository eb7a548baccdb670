import torch

from astra_core.engine.cache.key_values import KeyValues
from astra_core.engine.steps.slots import Arena


def filled():
    """Two rows of three and two tokens, one layer of two heads; every number is another."""
    values = KeyValues(1, [3, 2], 4)
    for at, name in enumerate(("keys", "values")):
        numbers = torch.arange(2 * 2 * 4 * 5, dtype=torch.float32).view(2, 2, 4, 5)
        setattr(values.layers[0], name, numbers + 1000 * at)
    values.layers[0].is_initialized = True
    return values


def test_a_row_comes_back_as_it_was_loaded_and_a_pass_writes_behind_it():
    values = filled()
    cache = Arena(values, 3 * 8).cache(3, 8)
    cache.load(torch.tensor([2, 0]), values, torch.tensor([0, 1]))
    cache.aim(torch.tensor([2, 5, 3]))
    new = torch.randn(3, 2, 1, 5)
    keys, _ = cache.update(new, -new, 0)

    assert (3, 2, 8, 5) == keys.shape
    for row, slot in enumerate((2, 5, 3)):
        torch.testing.assert_close(new[row, :, 0], keys[row, :, slot])
    found = cache.copy_rows(torch.tensor([0, 2]), [3, 4])
    assert [3, 4] == found.lengths
    for name, sign in (("keys", 1), ("values", -1)):
        before, after = (getattr(own.layers[0], name) for own in (values, found))
        torch.testing.assert_close(before[1, :, :2], after[0, :, :2])
        torch.testing.assert_close(before[0, :, :3], after[1, :, :3])
        torch.testing.assert_close(sign * new[2, :, 0], after[1, :, 3])


def test_caches_of_one_arena_lie_in_one_memory():
    arena = Arena(filled(), 24)
    first, second = arena.cache(3, 8), arena.cache(2, 4)

    assert first.layers[0].keys.data_ptr() == second.layers[0].keys.data_ptr()
