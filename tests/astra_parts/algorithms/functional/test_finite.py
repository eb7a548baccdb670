"""A reward that is no number is refused wherever rewards are compared; it is ranked nowhere."""

import math
from functools import partial

import pytest
import torch
from each_row import each_row

from astra_core.algorithms import functional as core
from astra_core.errors import ConfigurationError, DataError
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


ROWS, MASK = torch.zeros(2, 3), torch.ones(2, 3).bool()
FUTURE = "1 looks at the whole future"
HINTS = [
    (
        partial(core.backed_up_rewards, ROWS[0], parents=PATH, how="max", discount=2.0),
        "discount must lie in [0, 1], got 2.0; 0 keeps each turn's own reward",
    ),
    (
        partial(core.dpo_losses, ROWS[0], ROWS[0], beta=0.0),
        "beta must be positive, got 0.0; 0.1 is the usual start",
    ),
    (
        partial(core.off_policy_weights, ROWS, MASK, level="token", cap=0.0),
        "cap must be positive, got 0.0; 2 is usual of tokens, 5 of sequences",
    ),
    (
        partial(fn.gae, ROWS, ROWS, ROWS, done=MASK, terminated=MASK, discount=2.0, decay=1.0),
        f"discount must lie in [0, 1], got 2.0; {FUTURE}",
    ),
    (
        partial(fn.token_gae, ROWS, ROWS, MASK, discount=1.0, decay=2.0),
        f"decay must lie in [0, 1], got 2.0; {FUTURE}",
    ),
    (
        partial(fn.reward_to_go, ROWS, discount=2.0),
        f"discount must lie in [0, 1], got 2.0; {FUTURE}",
    ),
    (
        partial(fn.n_step_returns, ROWS, num_steps=1, discount=2.0),
        f"discount must lie in [0, 1], got 2.0; {FUTURE}",
    ),
    (
        partial(fn.selection_size, 4, fraction=0.0),
        "fraction must be positive, got 0.0; 0.5 draws half as many as there are",
    ),
    (
        partial(fn.adaptive_coefficient, 0.1, 1.0, target=0.0, horizon=9.0, num_samples=1),
        "target must be positive, got 0.0; a fixed coefficient needs none",
    ),
    (
        partial(fn.stepped_coefficient, 0.1, 1.0, target=0.0),
        "target must be positive, got 0.0; a fixed coefficient needs none",
    ),
    (
        partial(fn.truncated_surrogate, ROWS, ROWS, ROWS, max_ratio=0.0),
        "max_ratio must be positive, got 0.0; 5.0 is a usual cap",
    ),
    (
        partial(fn.value_losses, ROWS, ROWS, ROWS, clip=0.0),
        "clip must be positive, got 0.0; None turns clipping off",
    ),
    (
        partial(fn.clipped_surrogate, ROWS, ROWS, clip_low=0.2, clip_high=0.0),
        "clip_high must be positive, got 0.0; 0.2 is usual",
    ),
    (
        partial(
            fn.tree_gae,
            ROWS[0],
            torch.zeros(3, 1),
            torch.zeros(3, 1),
            torch.zeros(3, 1).bool(),
            PATH,
            final_values=ROWS[0],
            discount=1.0,
            turn_discount=2.0,
            decay=1.0,
        ),
        "turn_discount must lie in [0, 1], got 2.0; 1 looks at all turns alike",
    ),
]


@each_row("call, message", HINTS)
def test_a_number_out_of_range_is_refused_with_what_helps(call, message):
    with pytest.raises(ConfigurationError) as caught:
        call()

    assert message == str(caught.value)
