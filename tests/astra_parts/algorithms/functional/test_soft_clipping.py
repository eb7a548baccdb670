import math

import numpy as np
import pytest
import torch
from each_row import each_row

from astra_core.errors import ConfigurationError
from astra_parts.algorithms import functional as fn

TEMPERATURES = {"temperature_good": 1.0, "temperature_bad": 1.5}


def row(*numbers):
    return torch.tensor([numbers], dtype=torch.float64)


def losses_of(ratios, advantages, **options):
    log_ratios = row(*ratios).log().requires_grad_()
    return log_ratios, fn.soft_surrogate(log_ratios, row(*advantages), **TEMPERATURES | options)


@each_row("ratio", [0.1, 0.8, 1.0, 1.7, 6.0])
@each_row("advantage", [2.0, -2.0])
def test_value_and_gradient_are_the_papers_formulas(ratio, advantage):
    temperature = 1.0 if advantage > 0 else 1.5
    gate = 1 / (1 + np.exp(-temperature * (ratio - 1)))
    log_ratios, losses = losses_of([ratio], [advantage])
    losses.sum().backward()

    assert -4 / temperature * gate * advantage == pytest.approx(losses.item())
    # Eq. 7: the weight 4 p (1 - p) times the ratio.
    slope = -4 * gate * (1 - gate) * ratio * advantage
    assert slope == pytest.approx(log_ratios.grad.item())


def test_on_policy_it_has_the_gradient_of_reinforce_at_every_temperature():
    advantages = (1.0, -2.0, 0.5)
    for good, bad in ((1.0, 1.0), (0.3, 7.0)):
        log_ratios, losses = losses_of(
            [1.0] * 3, advantages, temperature_good=good, temperature_bad=bad
        )
        losses.sum().backward()

        torch.testing.assert_close(-row(*advantages), log_ratios.grad)


def test_a_token_further_off_gets_less_but_never_none():
    log_ratios, losses = losses_of([1.0, 3.0, 6.0], [-1.0] * 3)
    losses.sum().backward()
    weights = (log_ratios.grad / log_ratios.detach().exp()).abs()[0].tolist()

    assert weights[0] > weights[1] > weights[2] > 0.0


def test_an_advantage_of_zero_costs_nothing_and_a_tiny_good_one_is_good():
    _, losses = losses_of([2.0, 2.0], [0.0, 1e-3])

    assert 0.0 == losses[0, 0].item()
    assert -4e-3 / (1 + math.exp(-1.0)) == pytest.approx(losses[0, 1].item())


def test_one_advantage_stands_for_all_tokens_and_takes_no_gradient():
    log_ratios = row(1.0, 2.0).log().requires_grad_()
    advantages = row(1.0).requires_grad_()
    losses = fn.soft_surrogate(log_ratios, advantages, **TEMPERATURES)
    losses.sum().backward()

    assert [-2.0, -4 / (1 + math.exp(-1.0))] == pytest.approx(losses[0].tolist())
    assert advantages.grad is None


def test_it_agrees_with_finite_differences():
    log_ratios = torch.tensor([[0.3, -0.7, 1.2]], dtype=torch.float64, requires_grad=True)
    advantages = row(1.0, -2.0, -0.1)

    assert torch.autograd.gradcheck(
        lambda own: fn.soft_surrogate(own, advantages, **TEMPERATURES), (log_ratios,)
    )


@each_row("distance", [1e4, -1e4])
def test_it_is_finite_however_far_the_policies_are_apart(distance):
    log_ratios = torch.full((1, 1), distance, requires_grad=True)
    losses = fn.soft_surrogate(log_ratios, torch.ones(1, 1), **TEMPERATURES)
    losses.sum().backward()

    assert torch.isfinite(losses).all()
    assert torch.isfinite(log_ratios.grad).all()


@each_row("name", TEMPERATURES)
@each_row("value", [0.0, -1.0, math.nan])
def test_a_temperature_that_is_not_positive_is_refused(name, value):
    with pytest.raises(ConfigurationError) as caught:
        losses_of([1.0], [1.0], **{name: value})

    expected = f"{name} must be positive, got {value}; 1.0 and 1.05 are the paper's"
    assert expected == str(caught.value)
