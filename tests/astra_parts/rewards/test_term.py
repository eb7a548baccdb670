import math

from astra_parts.rewards.term import turns_of
from astra_parts.testing import tiny_graph, tiny_node, tiny_prompts


def test_turns_are_those_that_were_judged_with_the_opening_of_their_conversation():
    leaf = tiny_node(0.0, probe_text="leaf", context_ids=(9, 9, 0))
    failed = tiny_node(0.0, failure="TargetError", score=math.nan)
    unjudged = tiny_node(0.0, response_scores=(None,), response_unjudged=("empty",))
    prompts, rest = tiny_prompts(2), (failed, unjudged)
    graphs = [
        tiny_graph(tiny_node(0.0, leaf, context_ids=(4, 0)), *rest, prompt=prompts[0]),
        tiny_graph(prompt=prompts[1]),
        tiny_graph(tiny_node(0.0, context_ids=(5, 0)), prompt=prompts[1]),
    ]
    turns = turns_of(graphs)

    assert ["you are", "leaf", "you are"] == [turn.text for turn in turns]
    assert [(4, 0), (4, 0), (5, 0)] == [turn.opening_ids for turn in turns]
    assert [prompts[0], prompts[0], prompts[1]] == [turn.prompt for turn in turns]
