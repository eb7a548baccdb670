import math
from inspect import unwrap

import pytest
import torch

from astra_core.algorithms import functional as fn
from astra_core.errors import ShapeError


def test_dpo_loss_is_log_two_when_attacker_equals_reference():
    same = torch.zeros(4)

    for loss in fn.dpo_losses(same, same, beta=0.1).tolist():
        assert pytest.approx(math.log(2)) == loss


def test_sequence_log_ratios_ignore_padding_and_its_side():
    logprobs, reference = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.5, -1.0]])
    left = torch.tensor([[math.nan, -1.0, -2.0]]), torch.tensor([[0.0, -1.5, -1.0]])
    right = torch.tensor([[-1.0, -2.0, -9.0]]), torch.tensor([[-1.5, -1.0, math.nan]])
    everything, two = torch.tensor([[True, True]]), torch.tensor([[False, True, True]])

    for normalised, expected in ((False, -0.5), (True, -0.25)):
        options = {"length_normalised": normalised}
        for actual in (
            fn.sequence_log_ratios(logprobs, reference, everything, **options),
            fn.sequence_log_ratios(*left, two, **options),
            fn.sequence_log_ratios(*right, two.flip(1), **options),
        ):
            assert torch.equal(torch.tensor([expected]), actual)


def test_sequence_log_ratios_are_zero_without_tokens_and_train_no_reference():
    logprobs = torch.zeros(2, 3, requires_grad=True)
    reference = torch.ones(2, 3, requires_grad=True)
    ratios = fn.sequence_log_ratios(
        logprobs, reference, torch.zeros(2, 3).bool(), length_normalised=True
    )
    ratios.sum().backward()

    assert torch.equal(torch.zeros(2), ratios)
    assert reference.grad is None


def test_preference_metrics_do_not_count_a_tie_as_success():
    metrics = fn.preference_metrics(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0]), beta=1.0)

    assert metrics.accuracies.tolist() == [0.0, 1.0]


def test_pair_losses_refuse_sides_that_would_broadcast():
    with pytest.raises(ShapeError, match="rejected must have the shape of chosen"):
        unwrap(fn.dpo_losses)(torch.zeros(3), torch.zeros(1), beta=0.1)
    with pytest.raises(ShapeError, match="chosen must have 1 axes"):
        unwrap(fn.dpo_losses)(torch.zeros(3, 1), torch.zeros(3, 1), beta=0.1)


def test_a_sequence_weighs_by_how_likely_it_is_among_what_the_attacker_draws():
    # -1 and -2 nats where a token of the attacker's own has -0.5: 1 nat less per token.
    logprobs = torch.tensor([[-1.0, -2.0, math.nan], [-0.5, -0.5, -0.5]], requires_grad=True)
    collisions = torch.tensor([[-0.5, -0.5, math.nan], [-0.5, -0.5, -0.5]])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    weights = fn.on_policy_weights(logprobs, collisions, mask)

    assert [math.exp(-1.0), 1.0] == pytest.approx(weights.tolist())
    assert not weights.requires_grad


def test_a_weight_of_an_even_distribution_and_of_no_token_is_one():
    even = torch.full((2, 3), -math.log(7))
    mask = torch.tensor([[True, False, True], [False, False, False]])

    assert [1.0, 1.0] == pytest.approx(fn.on_policy_weights(even, even, mask).tolist())


def test_what_is_copied_is_a_mean_over_the_tokens_of_each_probe():
    logprobs = torch.tensor([[-1.0, -2.0, -9.0], [-4.0, math.nan, math.nan]], requires_grad=True)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    losses = fn.copied_pair_losses(logprobs, mask)
    losses.sum().backward()

    assert [1.5, 4.0] == losses.tolist()
    assert [[-0.5, -0.5, 0.0], [-1.0, 0.0, 0.0]] == logprobs.grad.tolist()
    assert [0.0] == fn.copied_pair_losses(torch.ones(1, 2), torch.zeros(1, 2).bool()).tolist()
