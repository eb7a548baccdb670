import math

import pytest
import torch
from each_row import each_row
from hypothesis import given, settings, strategies as st

from astra_core.algorithms import functional as core
from astra_core.errors import ConfigurationError
from astra_parts.algorithms import functional as fn

LAWS = settings(max_examples=40, derandomize=True, deadline=None)
REWARDS = st.lists(st.floats(-5, 5, width=32), max_size=10)


def test_selection_matches_nip_and_is_uniform_for_equal_rewards(cases):
    for case in cases("nip_expert_iteration_selection"):
        rewards = torch.tensor(case["rewards_per_round"], dtype=torch.float64).sum(-1)
        if case["method"] == "threshold":
            selected = fn.threshold_selection(rewards, threshold=case["threshold"])
            assert case["expected_selected"] == selected.nonzero().flatten().tolist()
            continue
        actual = fn.reward_weighted_probabilities(
            rewards,
            minimum=case.get("weighting_minimum"),
            exploration=case.get("weighting_epsilon", 0.01),
        )
        expected = case.get("expected_probabilities", [1 / len(rewards)] * len(rewards))
        torch.testing.assert_close(torch.tensor(expected, dtype=torch.float64), actual)
        if "expected_sample_size" in case:
            fraction = case.get("weighting_sample_size_factor", 0.5)
            size = fn.selection_size(len(rewards), fraction=fraction)
            assert case["expected_sample_size"] == size


def test_distillation_advantages_match_nexrl(cases):
    for case in cases("nexrl_on_policy_distillation", fn="opd_token_advantages"):
        student = torch.tensor([case["student"]])
        teacher = torch.tensor([[math.nan if x is None else x for x in case["teacher"]]])
        mask = torch.tensor([case["loss_mask"]]).bool()
        actual = fn.distillation_advantages(
            student, teacher, mask, coefficient=case["kl_penalty_coef"], discount=case["discount"]
        )
        kl = core.kl_estimates(student, teacher, estimator="k1")

        torch.testing.assert_close(torch.tensor(case["expected"]), actual[mask])
        assert not actual[~mask].any()
        metrics = case["expected_metrics"]
        assert pytest.approx(metrics["opd/teacher_kl"]) == core.masked_mean(kl, mask).item()
        assert metrics["opd/valid_tokens"] == core.masked_count(mask).item()


def test_distillation_descends_the_reverse_kl():
    """The gradient of the surrogate, averaged over the attacker's tokens, is that of the KL.

    NexRL's loss had the same gradient for every teacher (defect N1).
    """
    logits = torch.tensor([0.3, -0.2, 1.0], dtype=torch.float64, requires_grad=True)
    teacher = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64).log_softmax(-1)
    logprobs = logits.log_softmax(-1)
    probabilities = logprobs.exp()
    (expected,) = torch.autograd.grad(
        (probabilities * (logprobs - teacher)).sum(), logits, retain_graph=True
    )
    mask = torch.ones(1, 3).bool()
    advantages = fn.distillation_advantages(logprobs[None], teacher[None], mask, coefficient=1.0)
    losses = fn.reinforce_surrogate(logprobs[None], advantages)
    (actual,) = torch.autograd.grad((probabilities.detach() * losses[0]).sum(), logits)

    torch.testing.assert_close(expected, actual)


@LAWS
@given(rewards=REWARDS, k=st.integers(0, 12))
def test_top_k_keeps_the_k_best(rewards, k):
    tensor = torch.tensor(rewards)
    selected = fn.top_k_selection(tensor, k=k)

    assert min(k, len(rewards)) == int(selected.sum())
    assert sorted(rewards, reverse=True)[:k] == sorted(tensor[selected].tolist(), reverse=True)


def test_top_k_takes_the_first_of_equals():
    selected = fn.top_k_selection(torch.tensor([0.5, 0.9, 0.5, 0.5]), k=2)

    assert selected.tolist() == [True, True, False, False]


@LAWS
@given(
    rewards=REWARDS.filter(bool), minimum=st.none() | st.floats(-6, 6), exploration=st.floats(0, 1)
)
def test_reward_weighted_probabilities_are_a_distribution_that_follows_reward(
    rewards, minimum, exploration
):
    tensor = torch.tensor(rewards, dtype=torch.float64)
    actual = fn.reward_weighted_probabilities(tensor, minimum=minimum, exploration=exploration)
    ranked = actual[tensor.argsort()]

    assert pytest.approx(1.0) == actual.sum().item()
    assert (actual >= 0).all()
    assert (ranked.diff() >= -1e-12).all()


def test_reward_weighted_probabilities_known_numbers():
    # Above the lowest of all stand 1/4 and 1/4; a hundredth of the mass is spread over the three.
    rewards = torch.tensor([0.5, 0.75, 0.75], dtype=torch.float64)
    plain = fn.reward_weighted_probabilities(rewards, exploration=0.0)
    explored = fn.reward_weighted_probabilities(rewards)

    assert [0.0, 0.5, 0.5] == pytest.approx(plain.tolist())
    share = 0.01 / 3
    expected = [share / 1.01, (0.5 + share) / 1.01, (0.5 + share) / 1.01]
    assert expected == pytest.approx(explored.tolist())


def test_reward_weighted_probabilities_of_nothing_are_nothing():
    assert fn.reward_weighted_probabilities(torch.zeros(0)).shape == (0,)


@each_row(
    ("num_rollouts", "fraction", "expected"),
    [(0, 0.5, 0), (1, 0.5, 1), (5, 0.5, 2), (3, 2.0, 6), (3, 0.1, 1)],
)
def test_selection_size_draws_at_least_one_of_any(num_rollouts, fraction, expected):
    assert expected == fn.selection_size(num_rollouts, fraction=fraction)


@each_row(
    ("call", "message"),
    [
        (lambda: fn.top_k_selection(torch.zeros(2), k=-1), "k must not be negative"),
        (
            lambda: fn.reward_weighted_probabilities(torch.zeros(2), exploration=-0.1),
            "exploration must not be negative",
        ),
        (lambda: fn.selection_size(4, fraction=0.0), "fraction must be positive"),
    ],
)
def test_options_out_of_range_are_refused(call, message):
    with pytest.raises(ConfigurationError, match=message):
        call()


def test_distillation_looks_only_num_steps_ahead_and_not_into_padding():
    own, teacher = torch.zeros(1, 4), torch.tensor([[1.0, 2.0, 4.0, torch.nan]])
    mask = torch.tensor([[True, True, True, False]])
    found = fn.distillation_advantages(
        own, teacher, mask, coefficient=1.0, discount=0.5, num_steps=2
    )

    assert [[2.0, 4.0, 4.0, 0.0]] == found.tolist()
