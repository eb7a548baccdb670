import hashlib
import math

import pytest

from astra_core.errors import DataError
from astra_core.metadata import Metadata
from astra_core.rollout import Prompt, by_prompt, runs_of
from astra_core.testing import tiny_graph, tiny_node, tiny_prompts

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


def test_a_prompt_takes_any_mapping_and_keeps_it_unchanged():
    row = {"category": "fraud", "difficulty": 2}
    prompt = Prompt.of("you are late", row)
    row["difficulty"] = 3

    assert Metadata({"category": "fraud", "difficulty": 2}) == prompt.metadata
    assert hashlib.sha256(b"you are late").hexdigest()[:16] == prompt.prompt_id
    assert prompt == Prompt(prompt.prompt_id, prompt.text, {"category": "fraud", "difficulty": 2})
    assert prompt != Prompt.of("you are late")
    assert hash(prompt) == hash(Prompt.of("you are late", prompt.metadata))


def test_a_prompt_refuses_metadata_that_is_not_plain():
    with pytest.raises(DataError, match="got list for 'tags'"):
        Prompt("0", "why", {"tags": ["a"]})


def test_runs_of_a_prompt_are_together_and_numbered_from_zero():
    first, second = tiny_prompts(2)
    runs = runs_of([first, second], 2)

    assert (first, second) == runs_of([first, second], 1)
    assert [(first.prompt_id, 0), (first.prompt_id, 1), (second.prompt_id, 0)] == [
        (run.prompt_id, run.run_id) for run in runs[:3]
    ]


def test_graphs_are_grouped_by_prompt_in_the_order_of_the_first():
    first, second = tiny_prompts(2)
    graphs = [tiny_graph(prompt=prompt) for prompt in runs_of([second, first], 2)]
    mixed = [graphs[0], graphs[2], graphs[1], graphs[3]]

    assert [(graphs[0], graphs[1]), (graphs[2], graphs[3])] == by_prompt(mixed)
    assert [0, 1, 0, 1] == [graph.run_id for graph in graphs]
