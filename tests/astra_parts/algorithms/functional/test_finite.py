"""A reward that is no number is refused wherever rewards are compared; it is ranked nowhere."""

import math
from functools import partial

import pytest
import torch
from each_row import each_row

from astra_core.algorithms import functional as core
from astra_core.errors import DataError
from astra_parts.algorithms import functional as fn

ONE_GROUP = torch.zeros(3, dtype=torch.long)
SUBJECTS = {"masked_whiten": "values", "tree_gae": "turn_rewards"}
PATH = torch.tensor([-1, 0, 1])


def tree(turn_rewards):
    blank = torch.zeros(3, 1)
    weights = {"discount": 1.0, "turn_discount": 1.0, "decay": 1.0}
    return fn.tree_gae(
        turn_rewards, blank, blank, blank.bool(), PATH, final_values=torch.zeros(3), **weights
    )


RANKINGS = {
    "group_advantages": partial(fn.group_advantages, groups=ONE_GROUP),
    "group_advantages_over_runs": partial(
        fn.group_advantages_over_runs, groups=ONE_GROUP, runs=torch.arange(3)
    ),
    "leave_one_out": partial(fn.leave_one_out, groups=ONE_GROUP),
    "num_flat_groups": partial(core.num_flat_groups, groups=ONE_GROUP),
    "mean_baseline_advantages": fn.mean_baseline_advantages,
    "running_mean": partial(fn.running_mean, mean=0.0, num_seen=0),
    "backed_up_rewards": partial(core.backed_up_rewards, parents=PATH, discount=1.0, how="max"),
    "preference_pairs": partial(core.preference_pairs, groups=ONE_GROUP),
    "clipped_rewards": partial(fn.clipped_rewards, limit=1.0),
    "threshold_selection": partial(fn.threshold_selection, threshold=0.5),
    "top_k_selection": partial(fn.top_k_selection, k=1),
    "reward_weighted_probabilities": fn.reward_weighted_probabilities,
    "masked_whiten": partial(core.masked_whiten, mask=torch.ones(3).bool()),
    "tree_gae": tree,
}


@each_row("name", RANKINGS)
@each_row("wrong", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_number_is_refused_with_its_place(name, wrong):
    with pytest.raises(DataError) as caught:
        RANKINGS[name](torch.tensor([0.0, 0.5, wrong]))

    assert (
        f"{SUBJECTS.get(name, 'rewards')} must be finite, got {wrong} at place 2; "
        "leave out what has no number"
    ) == str(caught.value)


@each_row("name", RANKINGS)
def test_finite_rewards_are_accepted(name):
    RANKINGS[name](torch.tensor([0.0, 0.5, 1e30]))


def test_what_is_masked_may_be_no_number():
    values, mask = torch.tensor([1.0, math.nan, 3.0]), torch.tensor([True, False, True])

    assert [-1.0, 1.0] == core.masked_whiten(values, mask)[[0, 2]].tolist()


def test_the_first_of_several_is_named_in_a_matrix_too():
    rewards = torch.tensor([[0.0, 1.0], [math.inf, math.nan]])
    with pytest.raises(DataError, match="got inf at place 2;"):
        fn.leave_one_out(rewards)
