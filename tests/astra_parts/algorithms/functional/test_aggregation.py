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


def weight_of(mask, mode):
    return fn.aggregation_weight(mask, mode=mode, max_length=8)


def mean(values, mask, mode):
    return fn.aggregate(values, mask, mode=mode) / weight_of(mask, mode).clamp(min=1)


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
    assert total == fn.aggregate(VALUES, MASK, mode=mode).item()
    assert weight == weight_of(MASK, mode).item()


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
    mean(values, mask, mode).backward()
    whole, values.grad = values.grad, None

    order = torch.randperm(7, generator=generator)
    bounds = [0, *sorted(cuts), 7]
    parts = [order[a:b] for a, b in itertools.pairwise(bounds)]
    weight = sum(weight_of(mask[part], mode) for part in parts).clamp(min=1)
    for part in parts:
        (fn.aggregate(values[part], mask[part], mode=mode) / weight).backward()

    torch.testing.assert_close(whole, values.grad)


@each_row("mode", MODES)
def test_totals_and_weights_add_up_like_one_batch(mode):
    halves = [(VALUES[:1], MASK[:1]), (VALUES[1:], MASK[1:])]
    total = sum(fn.aggregate(values, mask, mode=mode) for values, mask in halves)
    weight = sum(weight_of(mask, mode) for _, mask in halves)

    torch.testing.assert_close(mean(VALUES, MASK, mode), total / weight)


@each_row("mode", MODES)
@each_row("padding", [(2, 0), (0, 3), (1, 1)])
def test_aggregate_ignores_padding_on_either_side(mode, padding):
    values = torch.nn.functional.pad(VALUES, padding, value=math.inf)
    mask = torch.nn.functional.pad(MASK, padding)

    assert mean(VALUES, MASK, mode) == mean(values, mask, mode)


@each_row("mode", MODES)
@each_row("shape", [(0, 0), (0, 4), (3, 0), (3, 4)])
def test_aggregate_is_zero_with_zero_gradient_without_tokens(mode, shape):
    values = torch.ones(shape, requires_grad=True)
    loss = mean(values, torch.zeros(shape).bool(), mode)
    loss.backward()

    assert loss.item() == 0
    assert torch.equal(torch.zeros(shape), values.grad)


@each_row("mode", MODES)
def test_the_weights_are_those_of_the_total(mode):
    weights = fn.aggregation_weights(MASK, mode=mode)

    assert (weights * VALUES.nan_to_num()).sum() == fn.aggregate(VALUES, MASK, mode=mode)


def test_one_column_stands_for_every_token_of_its_sequence():
    column = torch.tensor([[2.0], [10.0], [99.0]])

    assert mean(column, MASK, "sequence_mean").item() == 6.0
    assert mean(column, MASK, "token_mean").item() == 4.0


@each_row("mode", MODES)
def test_a_single_token_weighs_one(mode):
    only = torch.tensor([[True]])

    assert 5.0 == fn.aggregate(torch.tensor([[5.0]]), only, mode=mode).item()
    assert 1.0 == fn.aggregation_weight(only, mode=mode, max_length=1).item()


def test_double_precision_losses_are_weighted_in_double_precision():
    losses = torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.float64)
    total = fn.aggregate(losses, losses > 0, mode="sequence_mean")

    assert torch.float64 == total.dtype
    assert pytest.approx(7 / 3, rel=1e-14) == total.item()


def test_half_precision_losses_are_summed_in_float32():
    losses = torch.full((1, 1000), 0.1, dtype=torch.bfloat16)
    total = fn.aggregate(losses, losses > 0, mode="token_mean")

    assert torch.float32 == total.dtype
    assert pytest.approx(1000 * losses[0, 0].item(), rel=1e-5) == total.item()


def test_max_length_scales_the_constant_length_loss():
    short = fn.aggregation_weight(MASK, mode="constant_length", max_length=4)
    long = fn.aggregation_weight(MASK, mode="constant_length", max_length=8)

    assert pytest.approx(2.0) == (long / short).item()


def test_unknown_mode_names_the_known_ones():
    with pytest.raises(ConfigurationError, match=r"'token_mean'.*got 'sum'"):
        unchecked.aggregate(VALUES, MASK, mode="sum")
    with pytest.raises(ConfigurationError, match=r"'token_mean'.*got 'sum'"):
        unchecked.aggregation_weight(MASK, mode="sum", max_length=8)


def test_a_vector_of_losses_is_refused():
    with pytest.raises(ShapeError, match="values must have 2 axes"):
        unchecked.aggregate(torch.zeros(3), MASK, mode="token_mean")
