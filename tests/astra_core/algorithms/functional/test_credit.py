import pytest
import torch
from each_row import each_row
from hypothesis import given, settings, strategies as st

from astra_core.algorithms import functional as fn
from astra_core.algorithms.functional import credit as unchecked
from astra_core.errors import ConfigurationError, DataError, ShapeError
from astra_parts.algorithms import functional as parts

LAWS = settings(max_examples=40, derandomize=True, deadline=None)
BACKUPS = ["max", "mean", "leaf_mean"]


def flattened(children, parent=-1, rows=None):
    """Nodes of a nested tree as rows (reward, parent, context, probe), parents first."""
    rows = [] if rows is None else rows
    for node in children:
        rows.append((node["reward"], parent, node["context"], node["probe"]))
        flattened(node["children"], len(rows) - 1, rows)
    return rows


def columns(children):
    rows = flattened(children)
    rewards = torch.tensor([row[0] for row in rows], dtype=torch.float64)
    return rewards, torch.tensor([row[1] for row in rows], dtype=torch.long), rows


@st.composite
def forests(draw):
    size = draw(st.integers(0, 9))
    parents = [draw(st.integers(-1, node - 1)) for node in range(size)]
    rewards = [draw(st.floats(-3, 3)) for _ in range(size)]
    return torch.tensor(rewards, dtype=torch.float64), torch.tensor(parents, dtype=torch.long)


def test_best_child_back_up_matches_astra(cases):
    for case in cases("astra_reward_backup"):
        rewards, parents, _ = columns(case["graph"]["children"])
        expected, _, _ = columns(case["expected"])
        actual = fn.backed_up_rewards(rewards, parents, discount=case["gamma"], how="max")

        torch.testing.assert_close(expected, actual)


def test_expected_rewards_and_pairs_match_malt_with_its_bugs_corrected(cases):
    for case in cases("nip_malt_tree"):
        (left, right), (first, second) = case["level2_rewards"]
        rewards = torch.tensor([*case["level1_own_reward"], left, right, first, second])
        parents = torch.tensor([-1, -1, 0, 0, 1, 1])
        expected = fn.backed_up_rewards(rewards, parents, discount=1.0, how="leaf_mean")

        assert case["correct_level1_expected"] == expected[:2].tolist()
        assert case["level2_expected"] == expected[2:].tolist()
        positive = parts.threshold_selection(expected, threshold=case["threshold"])
        assert case["level2_is_positive"] == positive[2:].tolist()
        pairs = fn.preference_pairs(
            expected, fn.sibling_groups(parents), midpoint=case["threshold"]
        ).tolist()
        with_pair = [parents[chosen].item() for chosen, _ in pairs]
        assert case["level1_has_pair_among_children"] == [0 in with_pair, 1 in with_pair]
        # the first round counts too: NIP never looked at the root
        assert (positive[:2].tolist() == [True, False]) == ([0, 1] in pairs)


def test_pairs_match_astra_but_for_ties(cases):
    for case in cases("astra_dpo_flatten"):
        rewards, parents, rows = columns(case["graph"]["children"])
        expected = case.get("recommended_pairs", case.get("expected_pairs"))
        pairs = fn.preference_pairs(rewards, fn.sibling_groups(parents)).tolist()
        actual = [
            {"prefix": rows[best][2], "chosen": rows[best][3], "rejected": rows[worst][3]}
            for best, worst in pairs
        ]

        assert sorted(expected, key=str) == sorted(actual, key=str)


@each_row(
    ("how", "expected"),
    [
        # children 1 (leaf) and 2 (with leaves 3, 4): worth 4 and 0 + 0.5 * best or mean of (2, 6)
        ("max", [1 + 0.5 * 4, 4, 3, 2, 6]),
        ("mean", [1 + 0.5 * (4 + 2) / 2, 4, 2, 2, 6]),
        ("leaf_mean", [1 + 0.5 * (4 + 2 + 2) / 3, 4, 2, 2, 6]),
    ],
)
def test_each_back_up_on_a_lopsided_tree(how, expected):
    rewards = torch.tensor([1.0, 4.0, 0.0, 2.0, 6.0])
    parents = torch.tensor([-1, 0, 0, 2, 2])
    actual = fn.backed_up_rewards(rewards, parents, discount=0.5, how=how)

    torch.testing.assert_close(torch.tensor(expected, dtype=torch.float32), actual)


@LAWS
@given(rewards=st.lists(st.floats(-3, 3), max_size=6), discount=st.floats(0, 1))
@pytest.mark.parametrize("how", BACKUPS)
def test_on_a_path_every_back_up_is_the_reward_to_go(how, rewards, discount):
    path = torch.tensor(rewards, dtype=torch.float64)
    parents = torch.arange(len(path)) - 1

    torch.testing.assert_close(
        parts.reward_to_go(path, discount=discount),
        fn.backed_up_rewards(path, parents, discount=discount, how=how),
    )


@LAWS
@given(forest=forests(), seed=st.integers(0, 2**31))
@pytest.mark.parametrize("how", BACKUPS)
def test_back_up_follows_any_order_of_the_nodes(how, forest, seed):
    rewards, parents = forest
    order = torch.randperm(len(rewards), generator=torch.Generator().manual_seed(seed))
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    old_parents = parents[order]
    new_parents = torch.where(old_parents < 0, -1, place[old_parents.clamp(min=0)])

    torch.testing.assert_close(
        fn.backed_up_rewards(rewards, parents, discount=0.9, how=how)[order],
        fn.backed_up_rewards(rewards[order], new_parents, discount=0.9, how=how),
    )


def test_leaf_mean_counts_the_paths_below_the_node_of_index_0():
    parents, rewards = torch.tensor([1, -1, 0, 0, 1]), torch.tensor([0.0, 0.0, 0.0, 0.0, 3.0])
    found = fn.backed_up_rewards(rewards, parents, discount=1.0, how="leaf_mean")

    assert 3.0 / 3 == float(found[1])


@LAWS
@given(forest=forests())
def test_leaf_mean_of_the_first_turns_is_the_mean_return_of_all_paths(forest):
    rewards, parents = forest
    leaves = [n for n in range(len(rewards)) if n not in parents.tolist()]
    totals, owners = [], []
    for node in leaves:
        step, total = node, rewards[node].item()
        while (above := parents[step].item()) >= 0:
            step, total = above, total + rewards[above].item()
        totals.append(total)
        owners.append(step)
    expected = fn.backed_up_rewards(rewards, parents, discount=1.0, how="leaf_mean")

    for first in (parents < 0).nonzero().flatten().tolist():
        mine = [t for t, owner in zip(totals, owners, strict=True) if owner == first]
        assert pytest.approx(sum(mine) / len(mine), abs=1e-9) == expected[first].item()


def test_back_up_carries_no_gradient_and_leaves_its_input_alone():
    rewards = torch.tensor([1.0, 2.0], requires_grad=True)
    actual = fn.backed_up_rewards(rewards, torch.tensor([-1, 0]), discount=1.0, how="max")

    assert actual.tolist() == [3.0, 2.0]
    assert rewards.tolist() == [1.0, 2.0]
    assert not actual.requires_grad


def test_first_turns_of_different_prompts_are_no_siblings():
    parents, seeds = torch.tensor([-1, -1, -1, 0, 0]), torch.tensor([8, 8, 3, 8, 8])

    assert fn.sibling_groups(parents, seeds).tolist() == [-2, -2, -1, 0, 0]
    assert fn.sibling_groups(parents).tolist() == [-1, -1, -1, 0, 0]


def test_pairs_need_more_than_the_margin():
    rewards, groups = torch.tensor([0.0, 0.25, 0.0, 1.0]), torch.tensor([0, 0, 1, 1])

    assert fn.preference_pairs(rewards, groups).tolist() == [[1, 0], [3, 2]]
    assert fn.preference_pairs(rewards, groups, min_margin=0.25).tolist() == [[3, 2]]


def test_the_midpoint_parts_the_chosen_from_the_rejected():
    groups = torch.zeros(2).long()
    for rewards, expected in (
        ([0.5, 0.0], [[0, 1]]),  # the chosen reaches it
        ([0.9, 0.5], []),  # the rejected does not stay below
        ([0.4, 0.0], []),
    ):
        found = fn.preference_pairs(torch.tensor(rewards), groups, midpoint=0.5)
        assert expected == found.tolist()


def test_of_equals_the_first_is_chosen_and_the_last_rejected():
    rewards, groups = torch.tensor([1.0, 0.0, 1.0, 0.0]), torch.zeros(4).long()

    assert fn.preference_pairs(rewards, groups).tolist() == [[0, 3]]


def test_all_pairs_are_every_two_of_a_group_that_differ():
    rewards, groups = torch.tensor([0.5, 1.0, 0.5, 0.0]), torch.tensor([0, 0, 0, 1])

    assert fn.preference_pairs(rewards, groups, pairs="all").tolist() == [[1, 0], [1, 2]]


@each_row("horizon", [1, 2, 3, 9])
def test_a_horizon_makes_n_step_returns_of_a_path(horizon):
    rewards = torch.tensor([0.1, 0.7, 0.4, 0.2], dtype=torch.float64)
    expected = parts.n_step_returns(rewards, num_steps=horizon, discount=0.9)

    parents = torch.arange(4) - 1
    found = fn.backed_up_rewards(rewards, parents, discount=0.9, how="mean", horizon=horizon)
    torch.testing.assert_close(expected, found)


def test_pairs_of_nothing_are_an_empty_table():
    assert fn.preference_pairs(torch.zeros(0), torch.zeros(0).long()).shape == (0, 2)


@each_row(("parents", "lost"), [([-1, 2, 1], 1), ([0], 0), ([-1, 1, 0], 1)])
def test_cycles_are_refused(parents, lost):
    rewards = torch.zeros(len(parents))
    with pytest.raises(DataError) as caught:
        fn.backed_up_rewards(rewards, torch.tensor(parents), discount=1.0, how="max")
    assert (f"parents must lead to a first turn, node {lost} does not; there is a cycle") == str(
        caught.value
    )


@each_row(("parents", "span"), [([-2, 0], "-2 to 0"), ([-1, 2], "-1 to 2")])
def test_parents_that_do_not_exist_are_refused(parents, span):
    with pytest.raises(DataError) as caught:
        fn.backed_up_rewards(torch.zeros(2), torch.tensor(parents), discount=1.0, how="max")
    assert (f"parents must lie in [-1, 2), got {span}; renumber them after dropping nodes") == str(
        caught.value
    )


def test_options_out_of_range_are_refused():
    rewards, parents = torch.zeros(1), torch.tensor([-1])
    with pytest.raises(ConfigurationError, match="discount must lie in"):
        fn.backed_up_rewards(rewards, parents, discount=1.5, how="max")
    with pytest.raises(ConfigurationError, match="horizon must be at least 1, got 0"):
        fn.backed_up_rewards(rewards, parents, discount=1.0, how="max", horizon=0)
    message = r"^backup must be one of \['max', 'mean', 'leaf_mean'\], got 'sum'; see Backup$"
    with pytest.raises(ConfigurationError, match=message):
        unchecked.backed_up_rewards(rewards, parents, discount=1.0, how="sum")
    with pytest.raises(ConfigurationError, match="min_margin must not be negative"):
        fn.preference_pairs(rewards, parents, min_margin=-0.1)
    with pytest.raises(ShapeError, match="parents must have the shape of rewards"):
        unchecked.backed_up_rewards(rewards, torch.tensor([-1, 0]), discount=1.0, how="max")


def test_first_turns_are_visited_as_often_as_all_that_follow_them():
    # Two first turns; the first leads to three second ones, the other to one.
    parents = torch.tensor([-1, -1, 0, 0, 0, 1])
    weights = fn.visit_weights(parents)

    # Visits 1/2 1/2 1/6 1/6 1/6 1/2, times 6 turns over the 2 that a rollout has.
    assert [1.5, 1.5, 0.5, 0.5, 0.5, 1.5] == pytest.approx(weights.tolist())


def test_weighed_by_visits_turns_have_the_mean_reward_of_random_rollouts():
    rewards, parents = torch.tensor([0.3, 0.1, 0.9, 0.5, 0.2]).double(), [-1, -1, 0, 0, 1]
    parents = torch.tensor(parents)
    total = (fn.visit_weights(parents) * rewards).sum() * 2 / 5

    backed_up = fn.backed_up_rewards(rewards, parents, discount=1.0, how="mean")
    assert float(backed_up[:2].mean()) == pytest.approx(float(total))


def test_each_tree_has_a_mean_weight_of_one():
    parents, seeds = torch.tensor([-1, 0, 0, -1, -1]), torch.tensor([7, 7, 7, 3, 3])
    weights = fn.visit_weights(parents, seeds)

    assert [1.5, 0.75, 0.75, 1.0, 1.0] == pytest.approx(weights.tolist())
    assert [1.0] * 4 == fn.visit_weights(torch.full((4,), -1)).tolist()
