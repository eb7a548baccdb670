from dataclasses import replace

from astra_core.algorithms.credit import CreditedTurn, CreditOptions, credited_turns
from astra_parts.algorithms.run_groups import RunTurns, run_means, turns_by_prompt
from astra_parts.testing import tiny_graph, tiny_node, tiny_prompts

FIRST, SECOND = tiny_prompts(2)


def run_of(prompt, run_id, *rewards):
    nodes = [tiny_node(reward) for reward in rewards]
    return tiny_graph(*nodes, prompt=replace(prompt, run_id=run_id))


def compared(graphs):
    return turns_by_prompt(graphs, lambda own: credited_turns(own, CreditOptions(backup="none")))


def test_turns_of_all_runs_of_a_prompt_are_one_group_in_the_order_of_the_graphs():
    graphs = [run_of(FIRST, 0, 0.1, 0.2), run_of(SECOND, 0, 0.3), run_of(FIRST, 1, 0.4)]
    found = compared(graphs)

    assert [0.1, 0.2, 0.3, 0.4] == [turn.value for turn in found.turns]
    assert [0, 0, 1, 0] == [turn.group for turn in found.turns]
    assert [0, 0, 0, 1] == list(found.runs)


def test_a_failed_turn_is_in_no_group(failing):
    graph = run_of(FIRST, 1, 0.1, 0.2)
    found = compared([replace(graph, children=(failing(graph.children[0]), graph.children[1]))])

    assert ([0.2], [1]) == ([turn.value for turn in found.turns], list(found.runs))


def test_a_run_counts_once_with_its_mean():
    turns = [
        CreditedTurn(tiny_node(0.0), group, value)
        for group, value in ((1, 8.0), (0, 1.0), (0, 3.0), (0, 5.0))
    ]
    means = run_means(RunTurns(turns, [0, 0, 1, 0]))

    assert [(0, 3.0), (0, 3.0), (1, 8.0)] == [(turn.group, turn.value) for turn in means]
