import json
import math
from dataclasses import replace

from astra_core.rollout import Failure, Prompt, Replies
from astra_core.rollout.graph_record import graph_of, graph_record
from astra_parts.testing import tiny_graph, tiny_node


def through_json(graph):
    return graph_of(json.loads(json.dumps(graph_record(graph))))


def test_a_graph_is_the_same_after_it_was_json():
    replies = Replies(
        texts=("no", "never"),
        scores=(0.1, None),
        token_ids=((13, 0), (3,)),
        probe_logprobs=(-1 / 3, -math.pi, -1e-17),
        unjudged=("", "silent"),
        labels=({"insult": 0.25}, {}),
        rationales=("mild", ""),
    )
    deep = tiny_node(0.1, probe_logprobs=(-0.1, -0.2, -0.30000000000000004))
    node = replace(tiny_node(0.7, deep, tiny_node(-2.0)), outcome=replies)
    lost = replace(tiny_node(0.0), outcome=Failure("no answer", "timeout"))
    weighed = replace(node.probe, weights=(0.5, 2.0, 1.0))
    prompt = Prompt.of("why so bad", {"category": "noise", "level": 3, "odd": None})
    graph = tiny_graph(
        replace(node, probe=weighed), lost, prompt=replace(prompt, run_id=2), iteration=7
    )

    assert graph == through_json(graph)


def test_what_is_no_number_is_kept_too():
    graph = tiny_graph(tiny_node(math.nan))

    assert math.isnan(through_json(graph).children[0].reward)
