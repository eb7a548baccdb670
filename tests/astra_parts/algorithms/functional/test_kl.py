import math

import pytest
import torch
from each_row import each_row

from astra_core.algorithms import functional as core
from astra_core.algorithms.functional import kl as unchecked
from astra_core.errors import ConfigurationError, DataError
from astra_parts.algorithms import functional as fn

# Three tokens: the policy that sampled, the attacker by its logits, and the reference.
SAMPLED = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
REFERENCE = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)


def test_kl_in_the_reward_matches_nexrl(cases):
    for case in cases("nexrl_kl_in_reward"):
        rewards, mask = torch.tensor(case["scores"]).float(), torch.tensor(case["mask"]).bool()
        logprobs = torch.tensor(case["old_log_probs"])
        if case["ref_log_prob"] is None:  # NexRL goes on with a coefficient of 0; ours cannot
            with pytest.raises(AttributeError):
                unchecked.kl_estimates(logprobs, None, estimator="k1")
            continue
        kl = core.kl_estimates(logprobs, torch.tensor(case["ref_log_prob"]), estimator="k1")
        actual = fn.kl_penalised_rewards(rewards, kl, mask, coefficient=case["beta"])

        torch.testing.assert_close(torch.tensor(case["expected_token_level_rewards"]), actual)
        assert pytest.approx(case["expected_metrics"]["critic/kl"]) == (
            core.masked_mean(kl, mask, dim=-1).mean().item()
        )


def test_kl_in_the_reward_matches_the_documented_pattern(cases):
    for case in cases("seed_doc_patterns", fn="kl_penalised_rewards"):
        rewards = torch.tensor(case["rewards"])
        kl = core.kl_estimates(
            torch.tensor(case["log_probs"]), torch.tensor(case["ref_log_probs"]), estimator="k1"
        )
        actual = fn.kl_penalised_rewards(
            rewards, kl, torch.ones_like(rewards).bool(), coefficient=case["beta"]
        )

        torch.testing.assert_close(torch.tensor(case["expected"]), actual)


def test_masked_tokens_keep_their_reward_whatever_their_kl():
    rewards = fn.kl_penalised_rewards(
        torch.tensor([[1.0, 2.0]]),
        torch.tensor([[math.nan, 1.0]]),
        torch.tensor([[False, True]]),
        coefficient=0.5,
    )

    assert torch.equal(torch.tensor([[1.0, 1.5]]), rewards)


@each_row(
    ("kl", "expected"),
    [
        (6.0, 0.1),
        (6.6, 0.1 * (1 + 0.1 * 64 / 1000)),
        (60.0, 0.1 * (1 + 0.2 * 64 / 1000)),  # error held at 0.2
        (0.0, 0.1 * (1 - 0.2 * 64 / 1000)),
    ],
)
def test_adaptive_coefficient_known_numbers(kl, expected):
    actual = fn.adaptive_coefficient(0.1, kl, target=6.0, horizon=1000.0, num_samples=64)

    assert pytest.approx(expected, rel=1e-12) == actual


def test_adaptive_coefficient_finds_the_target():
    """A KL that falls as 1 / coefficient is held at its target."""
    coefficient = 0.01
    for _ in range(400):
        coefficient = fn.adaptive_coefficient(
            coefficient, 0.6 / coefficient, target=6.0, horizon=1000.0, num_samples=100
        )

    assert pytest.approx(0.1, rel=1e-2) == coefficient


@each_row(
    ("kl", "expected"), [(0.010, 1.0), (0.0149, 1.0), (0.016, 2.0), (0.0067, 1.0), (0.006, 0.5)]
)
def test_stepped_coefficient_moves_outside_its_band(kl, expected):
    assert expected == fn.stepped_coefficient(1.0, kl, target=0.01)


def test_stepped_coefficient_stays_at_the_edges_of_its_band():
    # The band of 3 is 2 to 4.5.
    for kl in (2.0, 4.5):
        assert fn.stepped_coefficient(1.0, kl, target=3.0) == 1.0


@each_row("target", [0.0, -1.0, math.nan])
def test_coefficients_need_a_target(target):
    with pytest.raises(ConfigurationError, match="target must be positive"):
        fn.adaptive_coefficient(0.1, 1.0, target=target, horizon=1.0, num_samples=1)
    with pytest.raises(ConfigurationError, match="target must be positive"):
        fn.stepped_coefficient(0.1, 1.0, target=target)
    with pytest.raises(ConfigurationError, match="horizon must be positive"):
        fn.adaptive_coefficient(0.1, 1.0, target=1.0, horizon=target, num_samples=1)


@each_row("estimator", ["k1", "k3"])
def test_weighted_by_the_ratio_value_and_gradient_are_those_of_the_divergence(estimator):
    logits = torch.tensor([0.1, -0.4, 0.2], dtype=torch.float64, requires_grad=True)
    logprobs = logits.log_softmax(-1)
    divergence = (logprobs.exp() * (logprobs - REFERENCE.log())).sum()
    (expected,) = torch.autograd.grad(divergence, logits)

    own = logits.log_softmax(-1)[None]
    kl = core.kl_estimates(own, REFERENCE.log()[None], estimator=estimator)
    weighted = fn.importance_weighted_kl(kl, own - SAMPLED.log())
    # The mean over what the older policy samples, exactly.
    mean = (SAMPLED * weighted[0]).sum()
    (found,) = torch.autograd.grad(mean, logits)

    assert divergence.item() == pytest.approx(mean.item())
    torch.testing.assert_close(expected, found)


def test_without_the_weight_neither_is():
    logits = torch.tensor([0.1, -0.4, 0.2], dtype=torch.float64, requires_grad=True)
    logprobs = logits.log_softmax(-1)
    divergence = (logprobs.exp() * (logprobs - REFERENCE.log())).sum()
    mean = (SAMPLED * core.kl_estimates(logprobs, REFERENCE.log(), estimator="k3")).sum()

    assert divergence.item() != pytest.approx(mean.item(), rel=0.05)


def test_on_policy_the_weight_is_one_and_far_off_it_is_held():
    kl, ratios = torch.full((1, 3), 2.0), torch.tensor([[0.0, 100.0, -100.0]])
    expected = [2.0, 2.0 * math.exp(20.0), 2.0 * math.exp(-20.0)]

    assert expected == pytest.approx(fn.importance_weighted_kl(kl, ratios)[0].tolist())


@each_row("kl", [math.nan, math.inf, -math.inf])
def test_a_kl_that_is_no_number_moves_no_coefficient(kl):
    message = f"kl must be finite, got {kl}; look for log-probabilities of minus infinity"
    for move in (
        lambda: fn.adaptive_coefficient(0.1, kl, target=1.0, horizon=10.0, num_samples=1),
        lambda: fn.stepped_coefficient(0.1, kl, target=1.0),
    ):
        with pytest.raises(DataError) as caught:
            move()
        assert message == str(caught.value)


def test_kl_in_the_reward_trains_nobody():
    kl = torch.ones(1, 2, requires_grad=True)

    assert not fn.kl_penalised_rewards(kl, kl, kl > 0, coefficient=0.1).requires_grad
