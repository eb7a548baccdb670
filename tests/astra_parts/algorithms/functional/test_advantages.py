import math
from inspect import unwrap

import pytest
import torch
from each_row import each_row
from hypothesis import given, settings, strategies as st

from astra_core.errors import ConfigurationError, ShapeError
from astra_parts.algorithms import functional as fn

LAWS = settings(max_examples=30, derandomize=True, deadline=None)
SEEDS = st.integers(0, 2**31)


def doubles(numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def flags(numbers):
    return torch.tensor(numbers, dtype=torch.bool)


def random_rows(seed, rows=3, length=6):
    generator = torch.Generator().manual_seed(seed)
    rewards, values = torch.randn(2, rows, length, generator=generator, dtype=torch.float64)
    mask = torch.rand(rows, length, generator=generator) < 0.6
    return rewards, values, mask


def test_gae_matches_torchrl_for_terminated_and_cut_episodes(cases):
    for case in cases("gae"):
        advantages, returns = fn.gae(
            doubles(case["reward"]),
            doubles(case["value"]),
            doubles(case["next_value"]),
            done=flags(case["done"]),
            terminated=flags(case["terminated"]),
            discount=case["gamma"],
            decay=case["lambda"],
        )

        torch.testing.assert_close(doubles(case["expected_advantage"]), advantages)
        torch.testing.assert_close(doubles(case["expected_value_target"]), returns)


def test_reward_to_go_matches_nip(cases):
    for case in cases("reward_to_go"):
        if "done" in case:
            actual = fn.reward_to_go(
                doubles(case["reward"]), done=flags(case["done"]), discount=case["gamma"]
            )
        else:
            rewards = doubles(case["reward_2_trajectories"])
            actual = fn.reward_to_go(rewards, discount=case["gamma"])

        torch.testing.assert_close(doubles(case["expected"]), actual)


def test_reward_to_go_is_the_discounted_future_sum_of_nexrl(cases):
    for case in cases("nexrl_on_policy_distillation", fn="discounted_future_sum"):
        actual = fn.reward_to_go(doubles(case["advantages"]), discount=case["discount"])

        torch.testing.assert_close(doubles(case["expected"]), actual)


def test_n_step_returns_match_the_documented_pattern(cases):
    for case in cases("seed_doc_patterns", fn="n_step_returns"):
        actual = fn.n_step_returns(
            doubles(case["rewards"]), num_steps=case["n"], discount=case["gamma"]
        )

        torch.testing.assert_close(doubles(case["expected"]), actual)


@LAWS
@given(seed=SEEDS)
def test_gae_without_decay_is_the_temporal_difference(seed):
    rewards, values, _ = random_rows(seed)
    never = torch.zeros_like(rewards).bool()
    advantages, returns = fn.gae(
        rewards, values, values.flip(0), done=never, terminated=never, discount=0.9, decay=0.0
    )

    torch.testing.assert_close(rewards + 0.9 * values.flip(0) - values, advantages)
    torch.testing.assert_close(advantages + values, returns)


@LAWS
@given(seed=SEEDS)
def test_token_gae_with_full_decay_is_reward_to_go_minus_value(seed):
    rewards, values, mask = random_rows(seed)
    advantages, returns = fn.token_gae(rewards, values, mask, discount=0.9, decay=1.0)

    expected = fn.reward_to_go(rewards, discount=0.9, mask=mask)
    torch.testing.assert_close(expected, returns)
    torch.testing.assert_close(torch.where(mask, expected - values, 0.0), advantages)


@LAWS
@given(seed=SEEDS)
def test_token_gae_sees_only_the_kept_tokens(seed):
    """Padding on both sides and the target's words in between change nothing, not even as nan."""
    rewards, values, mask = random_rows(seed)
    rewards, values = (x.where(mask, torch.full_like(x, math.nan)) for x in (rewards, values))
    last = doubles([0.5, -1.0, 2.0])
    advantages, returns = fn.token_gae(
        rewards, values, mask, discount=0.9, decay=0.8, final_values=last
    )

    for row in range(3):
        kept = mask[row]
        alone = torch.ones(1, int(kept.sum()), dtype=torch.bool)
        expected, expected_returns = fn.token_gae(
            rewards[row, kept][None],
            values[row, kept][None],
            alone,
            discount=0.9,
            decay=0.8,
            final_values=last[row : row + 1],
        )
        torch.testing.assert_close(expected[0], advantages[row, kept])
        torch.testing.assert_close(expected_returns[0], returns[row, kept])
    assert torch.equal(torch.zeros(int((~mask).sum())).double(), advantages[~mask])


@LAWS
@given(seed=SEEDS)
def test_token_gae_equals_gae_on_a_row_without_gaps(seed):
    rewards, values, _ = random_rows(seed)
    last = doubles([0.5, -1.0, 2.0])
    done = torch.zeros_like(rewards).bool()
    done[:, -1] = True
    following = torch.cat([values[:, 1:], last[:, None]], dim=1)
    options = {"discount": 0.95, "decay": 0.7}
    cut = fn.gae(rewards, values, following, done=done, terminated=done & False, **options)
    ended = fn.gae(rewards, values, following, done=done, terminated=done, **options)
    everything = torch.ones_like(done)

    torch.testing.assert_close(
        cut, fn.token_gae(rewards, values, everything, final_values=last, **options)
    )
    torch.testing.assert_close(ended, fn.token_gae(rewards, values, everything, **options))


def test_what_follows_an_ended_episode_does_not_leak_into_it():
    done = flags([0, 1, 0])
    options = {"done": done, "terminated": done, "discount": 1.0, "decay": 1.0}
    zeros = torch.zeros(3)
    quiet, _ = fn.gae(zeros, zeros, zeros, **options)
    loud, _ = fn.gae(torch.tensor([0.0, 0.0, 9.0]), zeros, torch.full((3,), 7.0), **options)

    assert torch.equal(quiet[1:2], loud[1:2])
    # nor into one that was only cut: its own next value, 7, and nothing of the reward 9
    cut, _ = fn.gae(
        torch.tensor([0.0, 0.0, 9.0]),
        zeros,
        torch.full((3,), 7.0),
        **{**options, "terminated": done & False},
    )
    assert torch.equal(torch.tensor([14.0, 7.0, 16.0]), cut)
    # an episode that terminated is done, whatever the flag says
    implied, _ = fn.gae(
        torch.tensor([0.0, 0.0, 9.0]), zeros, zeros, **{**options, "done": done & False}
    )
    assert torch.equal(torch.tensor([0.0, 0.0, 9.0]), implied)
    # the next value of a terminated step may be anything
    nowhere, _ = fn.gae(zeros, zeros, torch.tensor([0.0, math.nan, 0.0]), **options)
    assert torch.equal(torch.zeros(3), nowhere)


def test_advantages_carry_no_gradient():
    rewards, values = torch.ones(1, 3, requires_grad=True), torch.ones(1, 3, requires_grad=True)
    mask = torch.ones(1, 3).bool()
    advantages, returns = fn.token_gae(rewards, values, mask, discount=1.0, decay=1.0)

    assert not advantages.requires_grad
    assert not returns.requires_grad
    assert not fn.n_step_returns(rewards, num_steps=2, discount=1.0).requires_grad


@each_row("shape", [(0, 0), (0, 3), (2, 0)])
def test_returns_of_nothing_are_nothing(shape):
    rewards, none = torch.zeros(shape), torch.zeros(shape).bool()
    options = {"discount": 0.9, "decay": 0.9}

    assert shape == fn.reward_to_go(rewards, discount=0.9, done=none, mask=none).shape
    assert shape == fn.n_step_returns(rewards, num_steps=3, discount=0.9).shape
    assert shape == fn.token_gae(rewards, rewards, none, **options)[0].shape
    assert (
        shape == fn.gae(rewards, rewards, rewards, done=none, terminated=none, **options)[0].shape
    )


def test_a_fully_masked_row_has_zero_advantages():
    advantages, returns = fn.token_gae(
        torch.ones(1, 3),
        torch.full((1, 3), math.nan),
        torch.zeros(1, 3).bool(),
        discount=0.9,
        decay=0.9,
        final_values=torch.ones(1),
    )

    assert torch.equal(torch.zeros(1, 3), advantages)
    assert torch.equal(torch.zeros(1, 3), returns)


@each_row("discount", [-0.1, 1.1, math.nan])
def test_discounts_out_of_range_are_refused(discount):
    row, no = torch.zeros(1, 2), torch.zeros(1, 2).bool()
    for call in (
        lambda: fn.reward_to_go(row, discount=discount),
        lambda: fn.n_step_returns(row, num_steps=1, discount=discount),
        lambda: fn.token_gae(row, row, row > 0, discount=discount, decay=1.0),
        lambda: fn.gae(row, row, row, done=no, terminated=no, discount=discount, decay=1.0),
    ):
        with pytest.raises(ConfigurationError, match=r"^discount must lie in \[0, 1\]"):
            call()
    for call in (
        lambda: fn.token_gae(row, row, row > 0, discount=1.0, decay=discount),
        lambda: fn.gae(row, row, row, done=no, terminated=no, discount=1.0, decay=discount),
    ):
        with pytest.raises(ConfigurationError, match=r"^decay must lie in \[0, 1\]"):
            call()


def test_n_step_returns_of_one_step_are_the_rewards():
    rewards = torch.tensor([1.0, -2.0, 3.0])

    assert torch.equal(rewards, fn.n_step_returns(rewards, num_steps=1, discount=0.9))


def test_n_step_returns_need_a_step():
    with pytest.raises(ConfigurationError, match="num_steps must be at least 1"):
        fn.n_step_returns(torch.zeros(3), num_steps=0, discount=1.0)


def test_a_bootstrap_value_per_token_is_refused():
    rows = torch.zeros(2, 3)
    with pytest.raises(ShapeError, match=r"final_values must have the shape of rows, \(2,\)"):
        unwrap(fn.token_gae)(
            rows, rows, rows > 0, discount=1.0, decay=1.0, final_values=torch.zeros(2, 3)
        )


def test_gae_steps_over_what_is_masked():
    rewards, values = doubles([[1.0, 9.0, 2.0]]), doubles([[0.5, 9.0, 0.25]])
    next_values = doubles([[0.25, 9.0, 0.0]])
    never = flags([[0, 0, 0]])
    advantages, _ = fn.gae(
        rewards,
        values,
        next_values,
        done=never,
        terminated=never,
        discount=1.0,
        decay=0.5,
        mask=flags([[1, 0, 1]]),
    )

    # 2 - 0.25 = 1.75, then 1 + 0.25 - 0.5 + 0.5 * 1.75.
    assert [[1.625, 0.0, 1.75]] == advantages.tolist()
