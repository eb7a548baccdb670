import pytest
import torch
from each_row import each_row
from hypothesis import given, settings, strategies as st

from astra_core.algorithms import functional as fn
from astra_core.algorithms.credit import (
    CreditOptions,
    can_teach,
    credited_turns,
    flat_group_figures,
)
from astra_core.errors import ConfigurationError
from astra_parts.algorithms import functional as parts
from astra_parts.testing import tiny_graph, tiny_node

LAWS = settings(max_examples=40, derandomize=True, deadline=None)
BACKUPS = ["max", "mean", "leaf_mean"]


def trees():
    rewards = st.floats(-3, 3)
    leaves = st.builds(tiny_node, rewards)
    return st.recursive(
        leaves,
        lambda below: st.builds(
            lambda reward, children: tiny_node(reward, *children),
            rewards,
            st.lists(below, min_size=1, max_size=3),
        ),
        max_leaves=8,
    )


def values(graph, **options):
    return [turn.value for turn in credited_turns([graph], CreditOptions(**options))]


def path_graph(*rewards):
    node = tiny_node(rewards[-1])
    for reward in reversed(rewards[:-1]):
        node = tiny_node(reward, node)
    return tiny_graph(node)


@LAWS
@given(st.lists(trees(), min_size=1, max_size=3), st.sampled_from(BACKUPS), st.floats(0, 1))
def test_returns_are_the_backed_up_rewards(children, backup, discount):
    graph = tiny_graph(*children)
    nodes = list(graph.nodes())
    places = {node.path: index for index, node in enumerate(nodes)}
    expected = fn.backed_up_rewards(
        torch.tensor([node.reward for node in nodes], dtype=torch.float64),
        torch.tensor([places.get(node.path[:-1], -1) for node in nodes]),
        discount=discount,
        how=backup,
    )
    found = {
        turn.node.path: turn.value
        for turn in credited_turns([graph], CreditOptions(backup=backup, discount=discount))
    }

    assert expected.tolist() == pytest.approx([found[node.path] for node in nodes])


def test_best_child_returns_match_astra(vector_cases, graph_of):
    for case in vector_cases("astra_reward_backup"):
        found = values(graph_of(case["graph"]), backup="max", discount=case["gamma"])
        expected = graph_of({"children": case["expected"]}).nodes()

        assert [node.reward for node in expected] == pytest.approx(found)


def test_expected_rewards_match_malt(vector_cases):
    for case in vector_cases("nip_malt_tree"):
        below = [[tiny_node(reward) for reward in own] for own in case["level2_rewards"]]
        rewards = zip(case["level1_own_reward"], below, strict=True)
        graph = tiny_graph(*(tiny_node(own, *children) for own, children in rewards))
        found = values(graph, backup="leaf_mean", discount=1.0)

        assert case["correct_level1_expected"] + case["level2_expected"] == pytest.approx(found)


@each_row("backup", BACKUPS)
def test_along_a_path_returns_are_the_reward_to_go(backup):
    rewards = torch.tensor([0.1, 0.7, 0.4], dtype=torch.float64)
    expected = parts.reward_to_go(rewards, discount=0.9)

    assert expected.tolist() == pytest.approx(values(path_graph(*rewards.tolist()), backup=backup))


@each_row("horizon", [1, 2, 3, 7])
def test_a_horizon_gives_n_step_returns(horizon):
    rewards = torch.tensor([0.1, 0.7, 0.4, 0.2], dtype=torch.float64)
    expected = parts.n_step_returns(rewards, num_steps=horizon, discount=0.9)

    found = values(path_graph(*rewards.tolist()), backup="mean", horizon=horizon)
    assert expected.tolist() == pytest.approx(found)


def test_each_leaf_has_the_same_say_only_in_the_mean_over_leaves():
    node = tiny_node(0.0, tiny_node(0.0, *map(tiny_node, (1.0, 1.0, 1.0))), tiny_node(0.0))

    assert [0.75, 0.5] == [
        values(tiny_graph(node), backup=backup, discount=1.0)[0] for backup in ("leaf_mean", "mean")
    ]


def test_turns_that_failed_neither_count_nor_teach(failing):
    node = tiny_node(0.5, tiny_node(0.2), failing(tiny_node(9.0)))
    graph = tiny_graph(node, failing(tiny_node(1.0)))

    assert [pytest.approx(0.5 + 0.9 * 0.2), 0.2] == values(graph)
    assert values(graph, backup="leaf_mean") == values(graph)


def test_a_turn_without_trained_tokens_counts_but_does_not_teach():
    silent = tiny_node(1.0, probe_mask=(False,) * 3)

    assert [1.9] == pytest.approx(values(tiny_graph(tiny_node(1.0, silent))))


def test_groups_are_siblings_also_across_graphs():
    graph = tiny_graph(tiny_node(0.1, tiny_node(0.2), tiny_node(0.3)), tiny_node(0.4))
    groups = [turn.group for turn in credited_turns([graph, graph], CreditOptions())]

    assert groups[:2] == [groups[0]] * 2
    assert groups[2:4] == [groups[2]] * 2
    assert 4 == len(set(groups))


def test_flat_groups_are_counted():
    graph = tiny_graph(tiny_node(0.1, tiny_node(0.3), tiny_node(0.3)), tiny_node(0.9))
    turns = credited_turns([graph], CreditOptions(backup="none"))

    assert {"groups": 2.0, "flat_groups": 1.0} == flat_group_figures(turns)
    assert {"groups": 0.0, "flat_groups": 0.0} == flat_group_figures([])


def test_rollouts_end_where_a_turn_failed(failing):
    graph = tiny_graph(tiny_node(0.1, failing(tiny_node(0.2))), tiny_node(0.4, tiny_node(0.5)))

    paths = graph.paths(are_judged=True)

    assert [[0.1], [0.4, 0.5]] == [[n.reward for n in path] for path in paths]


def test_nothing_is_learned_from_a_turn_that_nobody_judged():
    unjudged = tiny_node(0.0, response_scores=(None,), response_unjudged=("empty",))
    graph = tiny_graph(tiny_node(0.9), unjudged, tiny_node(0.1))
    turns = credited_turns([graph], CreditOptions())

    assert [(0,), (2,)] == [turn.node.path for turn in turns]
    assert not can_teach(graph.children[1])
    assert [(0,), (2,)] == [path[0].path for path in graph.paths(are_judged=True)]


def test_a_turn_that_nobody_judged_is_no_zero_to_the_turn_before():
    unjudged = tiny_node(0.0, response_scores=(None,), response_unjudged=("empty",))
    beside = tiny_graph(tiny_node(0.5, tiny_node(1.0), unjudged))
    alone = tiny_graph(tiny_node(0.5, tiny_node(1.0)))

    assert values(alone, backup="mean") == values(beside, backup="mean")


def test_a_turn_alone_has_nothing_to_discount():
    assert "none" == CreditOptions(backup="none").backup
    for option in ({"discount": 0.5}, {"horizon": 2}):
        with pytest.raises(ConfigurationError, match="must be left out when backup is 'none'"):
            CreditOptions(backup="none", **option)


def test_a_turn_counts_by_its_visits_if_asked():
    graph = tiny_graph(
        tiny_node(0.9, tiny_node(0.5), tiny_node(0.1, failure="lost")), tiny_node(0.1)
    )

    def weights(**options):
        return [turn.weight for turn in credited_turns([graph], CreditOptions(**options))]

    # Of two rollouts one ends after the first turn: visits 1/2 1/2 1/2, times 3 over 1.5.
    assert [1.0] * 3 == weights() == weights(turn_weights="equal")
    assert [1.0] * 3 == pytest.approx(weights(turn_weights="visits"))
    wide = tiny_graph(tiny_node(0.9, tiny_node(0.5), tiny_node(0.1)))
    found = credited_turns([graph, wide], CreditOptions(turn_weights="visits"))
    assert [1.0, 1.0, 1.0, 1.5, 0.75, 0.75] == pytest.approx([turn.weight for turn in found])
