import itertools
import math
from typing import get_args

import pytest
import torch
from each_row import each_row
from hypothesis import given, settings, strategies as st

from astra_core.errors import ConfigurationError, ShapeError
from astra_parts.algorithms import functional as fn
from astra_parts.algorithms.functional import aggregation as unchecked

LAWS = settings(max_examples=40, derandomize=True, deadline=None)
MODES = get_args(fn.Aggregation)
VALUES = torch.tensor([[1.0, 2.0, 3.0], [10.0, math.nan, math.nan], [math.nan] * 3])
MASK = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0]]).bool()


def aggregate(values, mask, mode):
    return fn.aggregate(values, mask, mode=mode, max_length=8)


@each_row(
    ("mode", "total", "weight"),
    [
        ("token_mean", 16.0, 4.0),
        ("sequence_mean", 12.0, 2.0),  # 6 / 3 + 10 / 1, the empty row is no sequence
        ("sequence_sum", 16.0, 2.0),
        ("constant_length", 16.0, 16.0),  # two sequences of at most 8 tokens
    ],
)
def test_aggregate_totals_and_weights(mode, total, weight):
    actual = aggregate(VALUES, MASK, mode)

    assert (total, weight) == (actual.total.item(), actual.weight.item())
    assert pytest.approx(total / weight) == actual.mean().item()


def test_every_mode_has_its_row_above():
    assert {"token_mean", "sequence_mean", "sequence_sum", "constant_length"} == set(MODES)


@LAWS
@given(seed=st.integers(0, 2**31), cuts=st.lists(st.integers(0, 7), max_size=4))
@pytest.mark.parametrize("mode", MODES)
def test_loss_and_gradient_do_not_depend_on_the_micro_batches(mode, seed, cuts):
    """A mean of micro-batch means did, in NexRL by the token counts of each (defect N12)."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(7, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(7, 5, generator=generator) < 0.6
    aggregate(values, mask, mode).mean().backward()
    whole, values.grad = values.grad, None

    order = torch.randperm(7, generator=generator)
    bounds = [0, *sorted(cuts), 7]
    parts = [order[a:b] for a, b in itertools.pairwise(bounds)]
    weight = sum(fn.aggregation_weight(mask[part], mode=mode, max_length=8) for part in parts)
    for part in parts:
        (aggregate(values[part], mask[part], mode).total / weight.clamp(min=1)).backward()

    torch.testing.assert_close(whole, values.grad)


@each_row("mode", MODES)
def test_weighted_sums_add_up_like_one_batch(mode):
    summed = aggregate(VALUES[:1], MASK[:1], mode) + aggregate(VALUES[1:], MASK[1:], mode)

    torch.testing.assert_close(aggregate(VALUES, MASK, mode).mean(), summed.mean())


@each_row("mode", MODES)
@each_row("padding", [(2, 0), (0, 3), (1, 1)])
def test_aggregate_ignores_padding_on_either_side(mode, padding):
    values = torch.nn.functional.pad(VALUES, padding, value=math.inf)
    mask = torch.nn.functional.pad(MASK, padding)

    assert aggregate(VALUES, MASK, mode).mean() == aggregate(values, mask, mode).mean()


@each_row("mode", MODES)
@each_row("shape", [(0, 0), (0, 4), (3, 0), (3, 4)])
def test_aggregate_is_zero_with_zero_gradient_without_tokens(mode, shape):
    values = torch.ones(shape, requires_grad=True)
    loss = aggregate(values, torch.zeros(shape).bool(), mode).mean()
    loss.backward()

    assert loss.item() == 0
    assert torch.equal(torch.zeros(shape), values.grad)


@each_row("mode", MODES)
def test_the_weights_are_those_of_the_total(mode):
    weights = fn.aggregation_weights(MASK, mode=mode)

    assert (weights * VALUES.nan_to_num()).sum() == aggregate(VALUES, MASK, mode).total


def test_one_column_stands_for_every_token_of_its_sequence():
    column = torch.tensor([[2.0], [10.0], [99.0]])

    assert aggregate(column, MASK, "sequence_mean").mean().item() == 6.0
    assert aggregate(column, MASK, "token_mean").mean().item() == 4.0


@each_row("mode", MODES)
def test_a_single_token_weighs_one(mode):
    one = fn.aggregate(torch.tensor([[5.0]]), torch.tensor([[True]]), mode=mode, max_length=1)

    assert (5.0, 1.0, 5.0) == (one.total.item(), one.weight.item(), one.mean().item())


def test_double_precision_losses_are_weighted_in_double_precision():
    losses = torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.float64)
    found = aggregate(losses, losses > 0, "sequence_mean")

    assert (torch.float64, torch.float64) == (found.total.dtype, found.weight.dtype)
    assert pytest.approx(7 / 3, rel=1e-14) == found.mean().item()


def test_half_precision_losses_are_summed_in_float32():
    losses = torch.full((1, 1000), 0.1, dtype=torch.bfloat16)
    total = aggregate(losses, losses > 0, "token_mean").total

    assert torch.float32 == total.dtype
    assert pytest.approx(1000 * losses[0, 0].item(), rel=1e-5) == total.item()


def test_max_length_scales_the_constant_length_loss():
    short = fn.aggregate(VALUES, MASK, mode="constant_length", max_length=4).mean()
    long = fn.aggregate(VALUES, MASK, mode="constant_length", max_length=8).mean()

    assert pytest.approx(2.0) == (short / long).item()


@each_row("max_length", [None, 0])
def test_constant_length_needs_its_length(max_length):
    with pytest.raises(ConfigurationError) as caught:
        fn.aggregate(VALUES, MASK, mode="constant_length", max_length=max_length)
    assert (
        f"max_length must be positive for constant_length, got {max_length}; "
        "give the sampler's max_new_tokens"
    ) == str(caught.value)


def test_unknown_mode_names_the_known_ones():
    with pytest.raises(ConfigurationError, match=r"'token_mean'.*got 'sum'"):
        unchecked.aggregate(VALUES, MASK, mode="sum")


def test_a_vector_of_losses_is_refused():
    with pytest.raises(ShapeError, match="values must have 2 axes"):
        unchecked.aggregate(torch.zeros(3), MASK, mode="token_mean")
