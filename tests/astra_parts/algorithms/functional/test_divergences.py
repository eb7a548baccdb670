import math

import numpy as np
import pytest
import torch
from each_row import each_row

from astra_core.algorithms import functional as core
from astra_core.errors import ConfigurationError
from astra_parts.algorithms import functional as fn
from astra_parts.algorithms.functional import divergences as unchecked

ALPHA = 0.3
# The generators of the paper's table 1; the score is what f' of a ratio exceeds f'(1) by.
GENERATORS = {
    "reverse_kl": lambda u: u * np.log(u),
    "forward_kl": lambda u: -np.log(u),
    "jensen_shannon": lambda u: u * np.log(u) - (u + 1) * np.log((u + 1) / 2),
    "alpha": lambda u: (u ** (1 - ALPHA) - (1 - ALPHA) * u - ALPHA) / (ALPHA * (ALPHA - 1)),
}
POINTS = [-2.0, -0.5, 0.0, 0.3, 1.5]


def scores(log_ratios, divergence, **options):
    values = torch.tensor(log_ratios, dtype=torch.float64, requires_grad=True)
    return values, fn.divergence_scores(values, divergence=divergence, **options)


@each_row("divergence", GENERATORS)
def test_scores_are_the_slope_of_the_generator_at_the_ratio(divergence):
    def slope(u, step=1e-6):
        generator = GENERATORS[divergence]
        return (generator(u + step) - generator(u - step)) / (2 * step)

    expected = [slope(math.exp(c)) - slope(1.0) for c in POINTS]
    _, found = scores(POINTS, divergence, alpha=ALPHA)
    assert expected == pytest.approx(found.tolist(), rel=1e-6, abs=1e-8)


def test_under_the_reverse_kl_the_loss_is_dpo():
    chosen, rejected = torch.tensor([0.7, -3.0]), torch.tensor([0.2, 50.0])
    given = [fn.divergence_scores(side, divergence="reverse_kl") for side in (chosen, rejected)]

    assert torch.equal(
        core.dpo_losses(chosen, rejected, beta=0.1), core.dpo_losses(*given, beta=0.1)
    )


@each_row(("alpha", "limit"), [(1e-6, "reverse_kl"), (1 - 1e-6, "forward_kl")])
def test_alpha_lies_between_the_two_kls(alpha, limit):
    _, expected = scores(POINTS, limit)
    _, found = scores(POINTS, "alpha", alpha=alpha)

    torch.testing.assert_close(expected, found, rtol=1e-4, atol=1e-4)


def test_alpha_is_one_half_unless_said_otherwise():
    # (1 - exp(-1)) / (1/2) at c = 2.
    assert 2 * (1 - math.exp(-1.0)) == pytest.approx(scores([2.0], "alpha")[1].item())


@each_row("divergence", GENERATORS)
def test_scores_rise_everywhere_so_that_a_better_probe_is_pulled_up(divergence):
    values, found = scores([-60.0, -20.5, *POINTS, 15.0], divergence, alpha=ALPHA)
    found.sum().backward()

    assert bool((values.grad > 0).all())
    assert bool((found.diff() >= 0).all())


@each_row("divergence", GENERATORS)
def test_scores_agree_with_finite_differences(divergence):
    values = torch.tensor(POINTS, dtype=torch.float64, requires_grad=True)

    assert torch.autograd.gradcheck(
        lambda own: fn.divergence_scores(own, divergence=divergence, alpha=ALPHA), (values,)
    )


@each_row(
    ("divergence", "value", "slope"),
    [
        ("forward_kl", 1 - math.exp(20.0), math.exp(20.0)),
        ("alpha", (1 - math.exp(20.0 * ALPHA)) / ALPHA, math.exp(20.0 * ALPHA)),
    ],
)
def test_a_probe_that_ran_off_has_a_bounded_score_and_is_still_pulled_back(
    divergence, value, slope
):
    values, found = scores([-500.0], divergence, alpha=ALPHA)
    found.sum().backward()

    assert value == pytest.approx(found.item())
    assert slope == pytest.approx(values.grad.item())


@each_row("divergence", GENERATORS)
def test_scores_are_finite_however_far_out_in_float32(divergence):
    far = torch.tensor([-1e4, 1e4], requires_grad=True)
    found = fn.divergence_scores(far, divergence=divergence)
    found.sum().backward()

    assert torch.isfinite(found).all()
    assert torch.isfinite(far.grad).all()


@each_row("alpha", [0.0, 1.0, -0.5, math.nan])
def test_an_alpha_that_is_another_divergence_is_refused(alpha):
    with pytest.raises(ConfigurationError) as caught:
        fn.divergence_scores(torch.zeros(1), divergence="alpha", alpha=alpha)

    expected = f"alpha must lie in (0, 1), got {alpha}; 0 is reverse_kl and 1 forward_kl"
    assert expected == str(caught.value)


def test_an_unknown_divergence_is_refused():
    with pytest.raises(ConfigurationError) as caught:
        unchecked.divergence_scores(torch.zeros(1), divergence="total")

    expected = "divergence must be a name of Divergence, got 'total'; reverse_kl is usual"
    assert expected == str(caught.value)
