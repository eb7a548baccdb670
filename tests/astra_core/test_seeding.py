import numpy as np
import torch
from each_row import each_row

from astra_core.seeding import derive_key, derive_seed, generator, torch_seeded, uniforms

PINNED = "7fb4c3d8dc75e21c826b73decdcce651"


def test_a_key_is_the_same_in_every_process_and_version():
    # Published rollouts name their keys by this rule; a change of it must be deliberate.
    assert derive_key(7, "training", 3, "abc", (0, 2)).hex() == PINNED


def test_uniform_numbers_are_the_same_in_every_version_of_numpy():
    assert uniforms([bytes(16)], 2).tolist() == [[0.011546754286331562, 0.24154919656271812]]


@each_row(
    ("some", "others"),
    [
        ((1, "2"), (1, 2)),
        (("a", "b"), ("ab",)),
        ((1, 23), (12, 3)),
        (((0, 1),), ("0.1",)),
        (((0, 1),), ((0,), (1,))),
        (((),), ("",)),
        ((), ("",)),
    ],
)
def test_different_parts_give_different_keys(some, others):
    assert derive_key(0, *some) != derive_key(0, *others)


def test_different_seeds_give_different_keys():
    keys = {derive_key(seed, "a") for seed in range(100)}

    assert len(keys) == 100
    assert all(len(key) == 16 for key in keys)


def test_a_derived_seed_fits_a_signed_integer():
    assert all(0 <= derive_seed(seed, "x") < 2**63 for seed in range(200))


def test_a_row_of_uniform_numbers_depends_on_its_own_key_alone():
    keys = [derive_key(0, index) for index in range(5)]
    together = uniforms(keys, 7)

    assert together.shape == (5, 7)
    for key, row in zip(keys, together, strict=True):
        np.testing.assert_array_equal(uniforms([key], 7)[0], row)
        np.testing.assert_array_equal(uniforms([key], 3)[0], row[:3])


def test_uniform_numbers_of_no_key_have_the_shape_of_none():
    assert uniforms([], 4).shape == (0, 4)


def test_uniform_numbers_are_uniform():
    numbers = uniforms([derive_key(1, index) for index in range(2000)], 5)

    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    # 10,000 draws: the standard error of a decile's share is 0.003.
    shares = np.histogram(numbers, bins=10, range=(0.0, 1.0))[0] / numbers.size
    np.testing.assert_allclose(shares, 0.1, atol=0.012)
    # Neighbouring columns and rows are uncorrelated; the standard error is 0.022.
    assert abs(np.corrcoef(numbers[:, 0], numbers[:, 1])[0, 1]) < 0.08
    assert abs(np.corrcoef(numbers[:-1, 0], numbers[1:, 0])[0, 1]) < 0.08


def test_a_generator_repeats_itself():
    first, second = (generator(derive_key(0, "order")).permutation(9).tolist() for _ in range(2))

    assert first == second


def test_torch_is_seeded_inside_and_as_before_outside():
    before = torch.get_rng_state()
    with torch_seeded(5):
        first = torch.rand(3)
    with torch_seeded(5):
        second = torch.rand(3)

    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())
