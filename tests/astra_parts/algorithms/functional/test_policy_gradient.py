import math
from inspect import unwrap

import numpy as np
import pytest
import torch
from each_row import each_row
from hypothesis import given, settings, strategies as st

from astra_core.algorithms import functional as core
from astra_core.errors import ConfigurationError, ShapeError
from astra_parts.algorithms import functional as fn

LAWS = settings(max_examples=30, derandomize=True, deadline=None)
CLIP = {"clip_low": 0.2, "clip_high": 0.3}
TEMPERATURES = {"temperature_good": 1.0, "temperature_bad": 1.5}


def log(*ratios):
    return torch.tensor([ratios], dtype=torch.float64).log()


def row(*numbers):
    return torch.tensor([numbers], dtype=torch.float64)


# ratio, advantage -> loss, slope in the ratio; the clip is [0.8, 1.3], the dual clip 3
@each_row(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.5, 2.0, -2.6, 0.0),  # good and already likelier than 1.3: held
        (0.5, 2.0, -1.0, -2.0),  # good but fallen: pulled up
        (0.5, -2.0, 1.6, 0.0),  # bad and already below 0.8: held
        (1.5, -2.0, 3.0, 2.0),  # bad and risen: pushed down
        (5.0, -2.0, 6.0, 0.0),  # bad and run off: the dual clip holds
        (1.0, 0.5, -0.5, -0.5),  # good, though by little: the dual clip is not for it
    ],
)
def test_clipped_surrogate_known_numbers(ratio, advantage, loss, slope):
    log_ratios = log(ratio).requires_grad_()
    actual = fn.clipped_surrogate(log_ratios, row(advantage), **CLIP, dual_clip=3.0)
    actual.sum().backward()

    assert pytest.approx(loss) == actual.item()
    assert pytest.approx(slope * ratio) == log_ratios.grad.item()  # d r / d log r = r


def test_without_dual_clip_a_bad_token_that_ran_off_is_not_held():
    assert pytest.approx(10.0) == fn.clipped_surrogate(log(5.0), row(-2.0), **CLIP).item()


def test_is_clipped_is_where_the_gradient_vanishes():
    ratios = [0.5, 0.79, 0.81, 1.0, 1.29, 1.31, 2.0]
    for sign in (-1.0, 0.0, 1.0):
        log_ratios = log(*ratios).requires_grad_()
        advantages = torch.full((1, len(ratios)), sign, dtype=torch.float64)
        fn.clipped_surrogate(log_ratios, advantages, **CLIP).sum().backward()
        held = fn.is_clipped(log_ratios, advantages, **CLIP)

        expected = (log_ratios.grad == 0) & (advantages != 0)
        assert torch.equal(expected, held)


def test_dual_clipped_tokens_are_bad_and_ran_off():
    ratios, signs = log(5.0, 5.0, 2.9, 0.1), row(-1.0, 1.0, -1.0, -1.0)
    log_ratios = ratios.requires_grad_()
    held = fn.is_dual_clipped(log_ratios, signs, dual_clip=3.0)
    fn.clipped_surrogate(log_ratios, signs, **CLIP, dual_clip=3.0).sum().backward()

    assert [[True, False, False, False]] == held.tolist()
    # No gradient: the first by the dual clip, the second and the last by the plain one.
    assert [[0.0, 0.0, 2.9]] == [pytest.approx(log_ratios.grad[0, :3].tolist())]
    # A ratio at the bound itself still moves.
    edge = row(1.0).exp().item()
    assert [[False]] == fn.is_dual_clipped(row(1.0), row(-1.0), dual_clip=edge).tolist()
    # One advantage stands for all tokens.
    assert [[True, True, False]] == fn.is_dual_clipped(
        log(5.0, 4.0, 1.0), row(-1.0), dual_clip=3.0
    ).tolist()


def test_an_advantage_of_zero_is_not_dual_clipped_and_a_dual_clip_of_one_is_refused():
    assert [[False]] == fn.is_dual_clipped(log(5.0), row(0.0), dual_clip=3.0).tolist()
    with pytest.raises(ConfigurationError) as caught:
        fn.is_dual_clipped(log(5.0), row(1.0), dual_clip=1.0)
    assert "dual_clip must be above 1, got 1.0; 3.0 is usual, None turns it off" == str(
        caught.value
    )


def test_a_ratio_at_the_clip_itself_still_moves():
    # 1 + 1e-20 is 1: the ratio of an unmoved policy lies exactly on both clips.
    edge = {"clip_low": 1e-20, "clip_high": 1e-20}

    assert fn.is_clipped(row(0.0, 0.0), row(1.0, -1.0), **edge).tolist() == [[False, False]]


@LAWS
@given(seed=st.integers(0, 2**31))
def test_on_policy_all_surrogates_have_the_gradient_of_reinforce(seed):
    generator = torch.Generator().manual_seed(seed)
    old = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    advantages = torch.randn(3, 4, generator=generator, dtype=torch.float64)

    def gradient(surrogate):
        logprobs = old.clone().requires_grad_()
        surrogate(logprobs).sum().backward()
        return logprobs.grad

    for surrogate in (
        lambda lp: fn.reinforce_surrogate(lp, advantages),
        lambda lp: fn.clipped_surrogate(lp - old, advantages, **CLIP),
        lambda lp: fn.importance_sampling_surrogate(lp - old, advantages),
        lambda lp: fn.truncated_surrogate(lp, lp - old, advantages, max_ratio=5.0),
    ):
        torch.testing.assert_close(-advantages, gradient(surrogate))


def test_importance_sampling_and_truncation_differ_only_beyond_the_cap():
    # -r A has the gradient -r A in log p; the truncated one -min(r, 2) A.
    logprobs = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    old, advantages = -log(0.5, 1.5, 4.0), row(1.0, -1.0, 2.0)
    fn.importance_sampling_surrogate(logprobs - old, advantages).sum().backward()
    plain, logprobs.grad = logprobs.grad, None
    fn.truncated_surrogate(logprobs, logprobs - old, advantages, max_ratio=2.0).sum().backward()

    torch.testing.assert_close(row(-0.5, 1.5, -8.0), plain)
    torch.testing.assert_close(row(-0.5, 1.5, -4.0), logprobs.grad)


def test_sequence_level_ratios_share_the_gradient_over_the_tokens():
    # GSPO: the ratio is exp(mean of the log-ratios), so each of n tokens gets -r A / n.
    logprobs = torch.tensor([[0.2, 0.4, 9.0]], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, True, False]])
    ratios = core.sequence_log_ratios(
        logprobs, torch.zeros_like(logprobs), mask, length_normalised=True
    )
    losses = fn.importance_sampling_surrogate(ratios[:, None], row(2.0))
    fn.aggregate(losses, mask, mode="sequence_mean").backward()

    torch.testing.assert_close(row(-math.exp(0.3), -math.exp(0.3), 0.0), logprobs.grad)


def test_surrogates_send_no_gradient_into_the_advantages():
    """In ASTRA-RL the policy loss trained the value head (defect A17)."""
    advantages = torch.ones(1, 2, requires_grad=True)
    logprobs = torch.zeros(1, 2, requires_grad=True)
    for losses in (
        fn.reinforce_surrogate(logprobs, advantages),
        fn.clipped_surrogate(logprobs, advantages, **CLIP, dual_clip=3.0),
        fn.importance_sampling_surrogate(logprobs, advantages),
        fn.truncated_surrogate(logprobs, logprobs, advantages, max_ratio=2.0),
    ):
        losses.sum().backward()

    assert advantages.grad is None


@each_row("distance", [1e4, -1e4])
def test_surrogates_are_finite_however_far_the_policies_are_apart(distance):
    log_ratios = torch.full((1, 1), distance, requires_grad=True)
    losses = fn.importance_sampling_surrogate(log_ratios, torch.ones(1, 1))
    losses.sum().backward()

    # Held within 20 nats on either side.
    assert pytest.approx(-math.exp(math.copysign(20.0, distance))) == losses.item()
    assert torch.isfinite(log_ratios.grad).all()


def test_each_clip_changes_the_loss():
    log_ratios, advantages = log(0.5, 1.6, 4.0), row(-1.0, 1.0, -1.0)
    plain = fn.clipped_surrogate(log_ratios, advantages, clip_low=0.2, clip_high=0.2)
    lower = fn.clipped_surrogate(log_ratios, advantages, clip_low=0.3, clip_high=0.2)
    higher = fn.clipped_surrogate(log_ratios, advantages, clip_low=0.2, clip_high=0.3)
    dual = fn.clipped_surrogate(log_ratios, advantages, clip_low=0.2, clip_high=0.2, dual_clip=2.0)

    torch.testing.assert_close(row(0.8, -1.2, 4.0), plain)
    torch.testing.assert_close(row(0.7, -1.2, 4.0), lower)
    torch.testing.assert_close(row(0.8, -1.3, 4.0), higher)
    torch.testing.assert_close(row(0.8, -1.2, 2.0), dual)


@each_row(
    ("options", "message"),
    [
        ({"clip_low": 1.0, "clip_high": 0.2}, "clip_low must lie in"),
        ({"clip_low": 0.0, "clip_high": 0.2}, "clip_low must lie in"),
        ({"clip_low": 0.2, "clip_high": 0.0}, "clip_high must be positive"),
        ({"clip_low": 0.2, "clip_high": 0.2, "dual_clip": 1.0}, "dual_clip must be above 1"),
    ],
)
def test_clips_out_of_range_are_refused(options, message):
    with pytest.raises(ConfigurationError, match=message):
        fn.clipped_surrogate(torch.zeros(1, 1), torch.zeros(1, 1), **options)
    if "dual_clip" not in options:
        with pytest.raises(ConfigurationError, match=message):
            fn.is_clipped(torch.zeros(1, 1), torch.zeros(1, 1), **options)


def test_truncation_may_cap_below_one_and_needs_a_positive_cap():
    zero = torch.zeros(1, 1)
    assert fn.truncated_surrogate(zero - 2.0, zero, zero + 1.0, max_ratio=0.5).item() == 1.0
    with pytest.raises(ConfigurationError, match="max_ratio must be positive"):
        fn.truncated_surrogate(zero, zero, zero, max_ratio=0.0)


@each_row("shape", [(3,), (2, 1), (3, 2)])
def test_advantages_that_would_broadcast_wrongly_are_refused(shape):
    with pytest.raises(ShapeError, match="advantages must"):
        unwrap(fn.reinforce_surrogate)(torch.zeros(3, 3), torch.zeros(shape))


# prediction, old prediction, return -> loss, slope; clip 0.2
@each_row(
    ("value", "old", "target", "loss", "slope"),
    [
        (0.1, 0.0, 1.0, 0.405, -0.9),  # inside the clip: plain
        (0.5, 0.0, 1.0, 0.32, 0.0),  # moved 0.5 toward the return: held at 0.2
        (1.5, 1.0, 2.0, 0.32, 0.0),  # the same around another old prediction
        (-0.5, 0.0, 1.0, 1.125, -1.5),  # moved away: the plain error is the worse
        (-0.5, 0.0, -1.0, 0.32, 0.0),  # moved 0.5 down toward the return: held at -0.2
        (0.9, 1.0, 0.0, 0.405, 0.9),  # inside the clip around another old prediction
    ],
)
def test_value_losses_known_numbers(value, old, target, loss, slope):
    values = row(value).requires_grad_()
    actual = fn.value_losses(values, row(old), row(target), clip=0.2)
    actual.sum().backward()

    assert pytest.approx(loss) == actual.item()
    assert pytest.approx(slope) == values.grad.item()


def test_value_losses_without_clip_are_half_the_squared_error():
    actual = fn.value_losses(row(3.0), row(0.0), row(1.0))

    assert actual.item() == 2.0


def test_value_losses_refuse_a_clip_of_zero():
    with pytest.raises(ConfigurationError, match="clip must be positive"):
        fn.value_losses(row(3.0), row(0.0), row(1.0), clip=0.0)


def soft_losses_of(ratios, advantages, **options):
    log_ratios = log(*ratios).requires_grad_()
    return log_ratios, fn.soft_surrogate(log_ratios, row(*advantages), **TEMPERATURES | options)


@each_row("ratio", [0.1, 0.8, 1.0, 1.7, 6.0])
@each_row("advantage", [2.0, -2.0])
def test_the_soft_surrogate_has_the_papers_value_and_gradient(ratio, advantage):
    temperature = 1.0 if advantage > 0 else 1.5
    gate = 1 / (1 + np.exp(-temperature * (ratio - 1)))
    log_ratios, losses = soft_losses_of([ratio], [advantage])
    losses.sum().backward()

    assert -4 / temperature * gate * advantage == pytest.approx(losses.item())
    # Eq. 7: the weight 4 p (1 - p) times the ratio.
    slope = -4 * gate * (1 - gate) * ratio * advantage
    assert slope == pytest.approx(log_ratios.grad.item())


def test_on_policy_softening_has_the_gradient_of_reinforce_at_every_temperature():
    advantages = (1.0, -2.0, 0.5)
    for good, bad in ((1.0, 1.0), (0.3, 7.0)):
        log_ratios, losses = soft_losses_of(
            [1.0] * 3, advantages, temperature_good=good, temperature_bad=bad
        )
        losses.sum().backward()

        torch.testing.assert_close(-row(*advantages), log_ratios.grad)


def test_softly_a_token_further_off_gets_less_but_never_none():
    log_ratios, losses = soft_losses_of([1.0, 3.0, 6.0], [-1.0] * 3)
    losses.sum().backward()
    weights = (log_ratios.grad / log_ratios.detach().exp()).abs()[0].tolist()

    assert weights[0] > weights[1] > weights[2] > 0.0


def test_softly_an_advantage_of_zero_costs_nothing_and_a_tiny_good_one_is_good():
    _, losses = soft_losses_of([2.0, 2.0], [0.0, 1e-3])

    assert 0.0 == losses[0, 0].item()
    assert -4e-3 / (1 + math.exp(-1.0)) == pytest.approx(losses[0, 1].item())


def test_softly_one_advantage_stands_for_all_tokens_and_takes_no_gradient():
    log_ratios = log(1.0, 2.0).requires_grad_()
    advantages = row(1.0).requires_grad_()
    losses = fn.soft_surrogate(log_ratios, advantages, **TEMPERATURES)
    losses.sum().backward()

    assert [-2.0, -4 / (1 + math.exp(-1.0))] == pytest.approx(losses[0].tolist())
    assert advantages.grad is None


def test_the_soft_surrogate_agrees_with_finite_differences():
    log_ratios = torch.tensor([[0.3, -0.7, 1.2]], dtype=torch.float64, requires_grad=True)
    advantages = row(1.0, -2.0, -0.1)

    assert torch.autograd.gradcheck(
        lambda own: fn.soft_surrogate(own, advantages, **TEMPERATURES), (log_ratios,)
    )


@each_row("distance", [1e4, -1e4])
def test_the_soft_surrogate_is_finite_however_far_the_policies_are_apart(distance):
    log_ratios = torch.full((1, 1), distance, requires_grad=True)
    losses = fn.soft_surrogate(log_ratios, torch.ones(1, 1), **TEMPERATURES)
    losses.sum().backward()

    assert torch.isfinite(losses).all()
    assert torch.isfinite(log_ratios.grad).all()


@each_row("name", TEMPERATURES)
@each_row("value", [0.0, -1.0, math.nan])
def test_a_temperature_that_is_not_positive_is_refused(name, value):
    with pytest.raises(ConfigurationError) as caught:
        soft_losses_of([1.0], [1.0], **{name: value})

    expected = f"{name} must be positive, got {value}; 1.0 and 1.05 are the paper's"
    assert expected == str(caught.value)
