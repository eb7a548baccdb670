import math

from astra_core.testing import tiny_graph, tiny_node

GRAPH = tiny_graph(
    tiny_node(0.1, tiny_node(0.2, tiny_node(0.3)), tiny_node(0.4)),
    tiny_node(0.5),
    tiny_node(0.6, tiny_node(0.7)),
)


def test_nodes_come_breadth_first_and_siblings_in_order():
    assert [0.1, 0.5, 0.6, 0.2, 0.4, 0.7, 0.3] == [node.reward for node in GRAPH.nodes()]


def test_groups_are_the_children_of_each_parent_breadth_first():
    rewards = [tuple(node.reward for node in group) for group in GRAPH.groups()]

    assert [(0.1, 0.5, 0.6), (0.2, 0.4), (0.7,), (0.3,)] == rewards


def test_paths_lead_from_the_root_to_every_leaf():
    rewards = [tuple(node.reward for node in path) for path in GRAPH.paths()]

    assert [(0.1, 0.2, 0.3), (0.1, 0.4), (0.5,), (0.6, 0.7)] == rewards


def test_a_graph_without_turns_has_no_group_and_no_path():
    empty = tiny_graph()

    assert [] == [*empty.nodes(), *empty.groups(), *empty.paths()]


def test_likelihood_under_the_target_is_per_token():
    assert math.isclose(2.5, tiny_node(0.0, target_logprobs=(-1.0, -4.0)).target_nll)
    assert tiny_node(0.0, target_logprobs=()).target_nll == 0.0


def test_the_kl_of_a_probe_is_the_sum_of_its_log_ratios():
    node = tiny_node(0.0, probe_logprobs=(-1.0, -2.0), reference_logprobs=(-1.5, -3.0))

    assert math.isclose(1.5, node.kl_nats)
    assert tiny_node(0.0, reference_logprobs=()).kl_nats == 0.0


def test_a_turn_with_a_reason_has_failed():
    assert not tiny_node(0.0).has_failed
    assert tiny_node(0.0, failure="TargetError: no answer").has_failed
