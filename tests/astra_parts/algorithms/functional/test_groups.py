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
SEEDS = st.integers(0, 2**31)


def some_groups(seed):
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.randn(9, generator=generator, dtype=torch.float64)
    return rewards, torch.randint(-1, 3, (9,), generator=generator)


def test_group_advantages_match_nexrl_but_for_singletons(cases):
    for case in cases("nexrl_grpo_outcome_advantage"):
        mask = torch.tensor(case["mask"])
        rewards = torch.tensor(case["token_level_rewards"]).sum(-1)
        names = sorted(set(case["group"]))
        groups = torch.tensor([names.index(group) for group in case["group"]])
        if case["run_ids"] is None:
            advantages = fn.group_advantages(rewards, groups)
        else:
            advantages = fn.group_advantages_over_runs(
                rewards, groups, torch.tensor(case["run_ids"])
            )
        expected = torch.tensor(case["expected_advantages"])
        if "recommended_advantage_first_token_of_singletons" in case:
            expected[:2] = torch.tensor(case["recommended_advantage_first_token_of_singletons"])[0]

        actual = advantages[:, None] * mask
        torch.testing.assert_close(expected, actual, rtol=1e-5, atol=1e-6)


def test_group_advantages_of_one_group_match_the_documented_pattern(cases):
    for case in cases("seed_doc_patterns", fn="normalised_advantages"):
        rewards = torch.tensor(case["rewards"])
        actual = fn.group_advantages(rewards, torch.zeros(len(rewards), dtype=torch.long))

        torch.testing.assert_close(torch.tensor(case["expected"]), actual, rtol=1e-5, atol=1e-6)


def test_mean_baseline_matches_the_documented_pattern(cases):
    for case in cases("seed_doc_patterns", fn="mean_baseline_advantages"):
        actual = fn.mean_baseline_advantages(torch.tensor(case["rewards"]))

        torch.testing.assert_close(torch.tensor(case["expected"]), actual)
    assert fn.mean_baseline_advantages(torch.zeros(0)).shape == (0,)
    # Alone, a rollout is its own mean.
    assert fn.mean_baseline_advantages(torch.ones(1)).tolist() == [0.0]


def test_a_matrix_is_grouped_by_rows():
    rewards = torch.tensor([[1.0, 2.0, 4.0], [7.0, 7.0, 7.0]])
    groups = torch.tensor([[5, 5, 5], [-3, -3, -3]])

    assert torch.equal(fn.group_advantages(rewards, groups), fn.group_advantages(rewards))
    assert torch.equal(fn.leave_one_out(rewards, groups), fn.leave_one_out(rewards))
    assert core.num_flat_groups(rewards) == 1


@each_row("scale", ["group", "batch", "none"])
@each_row("size", [2, 3, 5, 64])
def test_group_advantages_are_exactly_zero_for_equal_rewards(scale, size):
    rewards = torch.tensor([[0.1], [0.7]]).expand(2, size)
    advantages = fn.group_advantages(rewards, scale=scale)

    assert torch.equal(torch.zeros(2, size), advantages)
    assert torch.equal(torch.zeros(2, size), fn.group_advantages(rewards, min_spread=0.0))
    assert torch.equal(torch.zeros(2, size), fn.leave_one_out(rewards))
    assert core.num_flat_groups(rewards) == 2


def test_not_scaling_keeps_the_reward_unit():
    rewards = torch.tensor([[0.0, 0.2], [0.0, 0.8]])

    torch.testing.assert_close(
        torch.tensor([[-0.1, 0.1], [-0.4, 0.4]]), fn.group_advantages(rewards, scale="none")
    )


def test_a_spread_of_exactly_the_least_teaches_nothing():
    # Squares about the mean of 0, 2 and 4 add up to 8; over n - 1 = 2 that is a spread of 2.
    rewards, one, runs = torch.tensor([0.0, 2.0, 4.0]), torch.zeros(3).long(), torch.arange(3)

    for least, flat in ((2.0, 1), (1.99, 0)):
        assert flat == core.num_flat_groups(rewards, one, min_spread=least)
        expected = [0.0, 0.0, 0.0] if flat else [-1.0, 0.0, 1.0]
        assert expected == fn.group_advantages(rewards, one, min_spread=least).tolist()
        over_runs = fn.group_advantages_over_runs(rewards, one, runs, min_spread=least)
        assert expected == over_runs.tolist()


@LAWS
@given(seed=SEEDS, shift=st.floats(-10, 10), scale=st.floats(0.5, 10))
def test_group_advantages_ignore_shift_and_scale(seed, shift, scale):
    rewards, groups = some_groups(seed)
    moved = rewards * scale + shift

    torch.testing.assert_close(
        fn.group_advantages(rewards, groups), fn.group_advantages(moved, groups)
    )
    torch.testing.assert_close(
        scale * fn.leave_one_out(rewards, groups), fn.leave_one_out(moved, groups)
    )


@LAWS
@given(seed=SEEDS)
def test_group_advantages_follow_a_permutation_and_a_renaming(seed):
    rewards, groups = some_groups(seed)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(seed))
    runs = groups.flip(0)

    torch.testing.assert_close(
        fn.group_advantages(rewards, groups)[order],
        fn.group_advantages(rewards[order], 100 - 7 * groups[order]),
    )
    torch.testing.assert_close(
        fn.group_advantages_over_runs(rewards, groups, runs)[order],
        fn.group_advantages_over_runs(rewards[order], -groups[order], 3 * runs[order]),
    )


@LAWS
@given(seed=SEEDS)
def test_group_advantages_sum_to_zero_with_unit_spread(seed):
    rewards, groups = some_groups(seed)
    advantages = fn.group_advantages(rewards, groups)

    for group in groups.unique():
        mine = advantages[groups == group]
        assert pytest.approx(0.0, abs=1e-9) == mine.sum().item()
        if len(mine) > 1:
            assert pytest.approx(1.0) == mine.std().item()


@LAWS
@given(seed=SEEDS)
def test_leave_one_out_subtracts_the_mean_of_the_others(seed):
    rewards, groups = some_groups(seed)
    advantages = fn.leave_one_out(rewards, groups)

    for index in range(9):
        others = groups == groups[index]
        others[index] = False
        expected = rewards[index] - rewards[others].mean() if others.any() else torch.tensor(0.0)
        assert pytest.approx(expected.item()) == advantages[index].item()


@LAWS
@given(seed=SEEDS)
def test_one_sequence_per_run_makes_runs_irrelevant(seed):
    rewards, _ = some_groups(seed)
    groups = torch.tensor([0, 0, 0, 1, 1, 1, 1, 1, 1])

    torch.testing.assert_close(
        fn.group_advantages(rewards, groups),
        fn.group_advantages_over_runs(rewards, groups, torch.arange(9)),
    )


def test_runs_of_equal_mean_teach_nothing():
    rewards = torch.tensor([0.0, 1.0, 0.5])
    advantages = fn.group_advantages_over_runs(
        rewards, torch.zeros(3).long(), torch.tensor([4, 4, 9])
    )

    assert torch.equal(torch.zeros(3), advantages)


def test_min_spread_of_runs_decides_what_is_a_signal():
    rewards, groups, runs = torch.tensor([0.0, 0.1]), torch.tensor([0, 0]), torch.tensor([0, 1])

    assert fn.group_advantages_over_runs(rewards, groups, runs).any()
    assert not fn.group_advantages_over_runs(rewards, groups, runs, min_spread=0.2).any()


def test_group_advantages_of_nothing_are_nothing():
    nothing, names = torch.zeros(0), torch.zeros(0).long()

    assert fn.group_advantages(nothing, names).shape == (0,)
    assert fn.group_advantages_over_runs(nothing, names, names).shape == (0,)
    assert fn.leave_one_out(torch.zeros(3, 0)).shape == (3, 0)
    assert core.num_flat_groups(nothing, names) == 0


def test_group_advantages_keep_dtype_and_drop_the_gradient():
    rewards = torch.rand(2, 3, requires_grad=True)

    assert torch.float32 == fn.group_advantages(rewards).dtype
    assert not fn.group_advantages(rewards).requires_grad
    assert not fn.leave_one_out(rewards).requires_grad


def test_group_advantages_need_groups_for_a_vector():
    with pytest.raises(ShapeError, match="rewards must have 2 axes"):
        fn.group_advantages(torch.zeros(4))
    with pytest.raises(ShapeError, match="groups must have the shape of rewards"):
        unwrap(fn.group_advantages)(torch.zeros(4), torch.zeros(3).long())


@LAWS
@given(rewards=st.lists(st.floats(-5, 5, width=32), max_size=12), cut=st.integers(0, 12))
def test_running_mean_does_not_depend_on_the_batches(rewards, cut):
    tensor = torch.tensor(rewards)
    mean, seen = fn.running_mean(tensor[:cut], mean=0.0, num_seen=0)
    if seen:
        assert pytest.approx(mean) == fn.running_mean(tensor[:cut], mean=math.nan, num_seen=0)[0]
    mean, seen = fn.running_mean(tensor[cut:], mean=mean, num_seen=seen)

    assert len(rewards) == seen
    assert pytest.approx(tensor.double().mean().item() if rewards else 0.0, abs=1e-9) == mean


def test_leave_one_out_keeps_the_precision_of_the_rewards():
    for dtype in (torch.float32, torch.float64):
        assert dtype == fn.leave_one_out(torch.tensor([[1.0, 2.0]], dtype=dtype)).dtype


def test_scaled_by_the_batch_a_group_keeps_its_size_beside_the_others():
    rewards = np.array([[0.0, 0.2], [0.0, 0.8], [3.0, 3.0]])
    # Each group is centred; the spread is that of all six, their means included.
    expected = (rewards - rewards.mean(axis=1, keepdims=True)) / rewards.std(ddof=1)

    found = fn.group_advantages(torch.tensor(rewards), scale="batch")
    assert expected.flatten().tolist() == pytest.approx(found.flatten().tolist())
    # Of one group alone it is the group's own spread.
    one = torch.tensor([[0.1, 0.5, 0.9]])
    torch.testing.assert_close(fn.group_advantages(one), fn.group_advantages(one, scale="batch"))


def test_a_flat_group_teaches_nothing_at_any_scale_and_the_least_spread_bounds_the_batchs():
    rewards = torch.tensor([[0.0, 0.2], [0.5, 0.5 + 1e-6]])
    for scale in ("group", "batch", "none"):
        assert [0.0, 0.0] == fn.group_advantages(rewards, scale=scale)[1].tolist()
    # Squares of 0, 2, 1, 1 about 1 add up to 2: the spread of all is sqrt(2/3), below the least.
    spread = torch.tensor([[0.0, 2.0], [1.0, 1.0]])
    found = fn.group_advantages(spread, scale="batch", min_spread=1.0)
    assert [[-1.0, 1.0], [0.0, 0.0]] == found.tolist()


def test_an_unknown_scale_is_refused():
    with pytest.raises(ConfigurationError) as caught:
        unwrap(fn.group_advantages)(torch.zeros(1, 2), scale="all")

    expected = "scale must be 'group', 'batch' or 'none', got 'all'; see AdvantageScale"
    assert expected == str(caught.value)


def test_groups_without_a_lesson_have_no_advantages():
    rewards = torch.tensor([0.1, 0.9, 0.5, 0.5, 0.3])
    groups = torch.tensor([7, 7, 2, 2, 5])  # told apart, tied, alone

    advantages = fn.group_advantages(rewards, groups)

    assert (advantages == 0).tolist() == [False, False, True, True, True]
    assert not fn.group_advantages(rewards, groups, min_spread=1.0).any()
