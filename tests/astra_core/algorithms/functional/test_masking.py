import math

import pytest
import torch
from each_row import each_row
from hypothesis import given, settings, strategies as st

from astra_core.algorithms import functional as fn

LAWS = settings(max_examples=30, derandomize=True, deadline=None)
SEEDS = st.integers(0, 2**31)


def test_masked_statistics_match_nexrl(cases):
    for case in cases("nexrl_masked_stats"):
        values, mask = torch.tensor(case["values"]), torch.tensor(case["mask"]).bool()
        if case["fn"] == "masked_mean":
            actual = fn.masked_mean(values, mask, dim=case["axis"])
        else:
            actual = fn.masked_whiten(values, mask)

        torch.testing.assert_close(torch.tensor(case["expected"]), actual, rtol=1e-5, atol=1e-6)


def test_masked_whiten_centres_what_is_kept():
    values = torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]).bool()
    whitened = fn.masked_whiten(values, mask)

    assert pytest.approx(0.0, abs=1e-12) == fn.masked_mean(whitened, mask).item()
    assert pytest.approx(1.0) == fn.masked_variance(whitened, mask).item()


@each_row("shape", [(0, 0), (0, 3), (3, 0), (2, 3)])
def test_masked_statistics_are_zero_when_nothing_is_kept(shape):
    values = torch.full(shape, math.nan)
    mask = torch.zeros(shape, dtype=torch.bool)

    assert fn.masked_sum(values, mask).item() == 0
    assert fn.masked_mean(values, mask).item() == 0
    assert fn.masked_variance(values, mask).item() == 0
    assert torch.equal(torch.zeros(shape), fn.masked_whiten(values, mask))
    assert torch.equal(torch.zeros(shape[0]), fn.masked_mean(values, mask, dim=-1))


def test_masked_whiten_is_exactly_zero_for_equal_values():
    """Rounding of the mean alone would give equal values up to 0.15."""
    values = torch.full((7, 9), 0.1)

    assert torch.equal(torch.zeros(7, 9), fn.masked_whiten(values, values > 0))


def test_masked_whiten_min_spread_decides_what_is_a_signal():
    values, mask = torch.tensor([0.0, 0.01]), torch.ones(2).bool()

    assert torch.equal(torch.tensor([-1.0, 1.0]), fn.masked_whiten(values, mask).round())
    assert torch.equal(torch.zeros(2), fn.masked_whiten(values, mask, min_spread=0.1))
    # 0 and 2 spread by exactly 1, which is not more than 1.
    apart = torch.tensor([0.0, 2.0])
    assert torch.equal(torch.zeros(2), fn.masked_whiten(apart, mask, min_spread=1.0))
    assert torch.equal(apart - 1.0, fn.masked_whiten(apart, mask, min_spread=0.99))


def test_masked_variance_is_that_of_the_kept_values():
    # Values 1, 2, 4: squares about the mean 7/3 add up to 14/3.
    values, mask = torch.tensor([1.0, 2.0, 4.0, 100.0]), torch.tensor([1, 1, 1, 0]).bool()

    assert pytest.approx(14 / 9) == fn.masked_variance(values, mask).item()


def test_masked_variance_of_two_and_of_one():
    values = torch.tensor([1.0, 3.0])

    assert fn.masked_variance(values, torch.tensor([True, True])).item() == 1.0
    assert fn.masked_variance(values, torch.tensor([True, False])).item() == 0.0


def test_masked_mean_has_no_gradient_outside_the_mask():
    values = torch.tensor([1.0, math.nan, 3.0], requires_grad=True)
    fn.masked_mean(values, torch.tensor([True, False, True])).backward()

    assert torch.equal(torch.tensor([0.5, 0.0, 0.5]), values.grad)


@LAWS
@given(seed=SEEDS, shift=st.floats(-50, 50), scale=st.floats(0.5, 20))
def test_masked_whiten_ignores_shift_and_scale(seed, shift, scale):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(4, 5, generator=generator, dtype=torch.float64)
    mask = torch.rand(4, 5, generator=generator) < 0.7

    torch.testing.assert_close(
        fn.masked_whiten(values, mask), fn.masked_whiten(values * scale + shift, mask)
    )


@LAWS
@given(seed=SEEDS, left=st.integers(0, 4), right=st.integers(0, 4))
def test_masked_mean_ignores_padding_on_either_side(seed, left, right):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    mask = torch.rand(3, 4, generator=generator) < 0.7
    padded = torch.nn.functional.pad(values, (left, right), value=math.nan)
    padded_mask = torch.nn.functional.pad(mask, (left, right))

    for dim in (None, -1):
        torch.testing.assert_close(
            fn.masked_mean(values, mask, dim=dim), fn.masked_mean(padded, padded_mask, dim=dim)
        )
