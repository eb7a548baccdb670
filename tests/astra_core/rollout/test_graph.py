from dataclasses import replace

from astra_core.rollout import by_prompt, runs_of
from astra_parts.testing import tiny_graph, tiny_node, tiny_prompts

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


def test_a_change_of_every_turn_leaves_the_tree_as_it_is():
    doubled = GRAPH.map_turns(lambda node: replace(node, reward=2 * node.reward))

    assert [0.2, 1.0, 1.2, 0.4, 0.8, 1.4, 0.6] == [node.reward for node in doubled.nodes()]
    assert GRAPH == doubled.map_turns(lambda node: replace(node, reward=node.reward / 2))


def test_a_graph_without_turns_has_no_group_and_no_path():
    empty = tiny_graph()

    assert [] == [*empty.nodes(), *empty.groups(), *empty.paths()]


def test_graphs_are_grouped_by_prompt_in_the_order_of_the_first():
    first, second = tiny_prompts(2)
    graphs = [tiny_graph(prompt=prompt) for prompt in runs_of([second, first], 2)]
    mixed = [graphs[0], graphs[2], graphs[1], graphs[3]]

    assert [(graphs[0], graphs[1]), (graphs[2], graphs[3])] == by_prompt(mixed)
    assert [0, 1, 0, 1] == [graph.run_id for graph in graphs]
