import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from each_row import each_row

from astra_core.algorithms.dpo import DPO
from astra_core.errors import ConfigurationError, TrainingError
from astra_core.rollout import Context, Probe
from astra_parts.algorithms.expert_iteration import ExpertIteration
from astra_parts.services.text_lines import chat_of, lines_of, method_of
from astra_parts.testing import tiny_graph, tiny_node, tiny_system
from tasks.serving.fine_tuning.lines import examples_of

VECTORS = Path(__file__).parents[2] / "vectors"
MALT = json.loads((VECTORS / "nip_malt_tree.json").read_text("utf-8"))["cases"]
SELECTION = json.loads((VECTORS / "nip_expert_iteration_selection.json").read_text("utf-8"))


@cache
def shared_system():
    return tiny_system(0)


def model():
    return shared_system().attacker


WORDS = ("you are", "why so", "never", "bad", "worse", "we", "so", "now")


def spoken(node, text, context=("why",)):
    ids = tuple(i for said in context for i in model().closed_ids(model().encode(said)))
    said = model().closed_ids(model().encode(text))
    probe = Probe(text, said, (0.0,) * len(said), (True,) * len(said), (0.0,) * len(said))
    return replace(node, context=Context(ids), probe=probe)


def tree(case):
    """The response tree of a case, each turn with a text of its own."""
    texts = iter(WORDS)
    level1 = []
    for own, below in zip(case["level1_own_reward"], case["level2_rewards"], strict=True):
        text = next(texts)
        leaves = [spoken(tiny_node(r), next(texts), ("why", text, "yes")) for r in below]
        level1.append(spoken(tiny_node(own, *leaves), text))
    return tiny_graph(*level1)


def lines(algorithm, *graphs, **options):
    own = algorithm(algorithm.Options(**options), system=shared_system())
    steps = [step for graph in graphs for step in own.flatten(graph)]
    method = "dpo" if algorithm is DPO else "supervised"
    return lines_of(model(), steps, method=method, seed=1, iteration=0)


def test_a_context_is_a_chat_that_ends_with_the_user():
    ids = tuple(i for said in WORDS[:3] for i in model().closed_ids(model().encode(said)))
    chat = chat_of(model(), ids)

    assert ["user", "assistant", "user"] == [own["role"] for own in chat]
    assert list(WORDS[:3]) == [own["content"] for own in chat]
    cut = chat_of(model(), ids[len(model().closed_ids(model().encode(WORDS[0]))) :])
    assert [WORDS[2]] == [own["content"] for own in cut]


@each_row("case", MALT)
def test_preferences_are_those_of_the_response_tree(case):
    options = {"backup": "leaf_mean", "midpoint": case["threshold"], "margin": 0.0}
    found = lines(DPO, tree(case), discount=1.0, **options)
    worth = case["correct_level1_expected"]
    is_first = (max(worth) >= case["threshold"]) and (min(worth) < case["threshold"])

    # The reference system never pairs the first responses.
    assert len(found.records) == is_first + sum(case["level1_has_pair_among_children"])
    assert found.content() == b"" or examples_of(found.content(), "dpo")


@each_row("case", [c for c in SELECTION["cases"] if c["method"] == "threshold"])
def test_answers_to_imitate_are_those_above_the_threshold(case):
    graphs = [
        tiny_graph(spoken(tiny_node(rewards[0] + rewards[1]), WORDS[at]))
        for at, rewards in enumerate(case["rewards_per_round"])
    ]
    wanted = [
        at for at, own in enumerate(case["rewards_per_round"]) if sum(own) >= case["threshold"]
    ]
    found = lines(ExpertIteration, *graphs, selection="threshold", threshold=case["threshold"])

    assert [WORDS[at] for at in wanted] == [own["messages"][-1]["content"] for own in found.records]
    if found.records:
        assert len(wanted) == len(examples_of(found.content(), "supervised"))


def test_a_fraction_of_a_copy_is_drawn_with_its_expectation():
    nodes = [
        spoken(tiny_node(reward), text) for reward, text in zip((0, 1, 3), WORDS, strict=False)
    ]
    own = ExpertIteration(
        ExpertIteration.Options(selection="reward_weighted", exploration=0.0),
        system=shared_system(),
    )
    steps = own.flatten(tiny_graph(*(replace(n, path=(at,)) for at, n in enumerate(nodes))))
    counts = [
        len(lines_of(model(), steps, method="supervised", seed=1, iteration=i).records)
        for i in range(200)
    ]

    assert 3.0 == pytest.approx(sum(counts) / 200, abs=0.15)
    assert len(set(counts)) > 1


def test_a_preference_is_there_as_often_as_its_pair_counts():
    graph = tree({"level1_own_reward": [0.0, 1.0], "level2_rewards": [[0.0, 1.0], [0.0, 1.0]]})
    pairs = DPO(DPO.Options(turn_weights="visits"), system=shared_system()).flatten(graph)
    drawn = [
        lines_of(model(), pairs, method="dpo", seed=1, iteration=i).records for i in range(200)
    ]
    of_first = [sum(len(own["input"]["messages"]) == 1 for own in each) for each in drawn]

    assert [1.5, 0.75, 0.75] == [pair.weight for pair in pairs]
    assert 1.5 == pytest.approx(sum(of_first) / 200, abs=0.1)
    assert 3.0 == pytest.approx(sum(map(len, drawn)) / 200, abs=0.15)
    assert {1, 2} == set(of_first)


def test_an_earlier_answer_is_read_and_not_learned():
    (graph,) = [tree(MALT[1])]
    found = lines(ExpertIteration, graph, selection="top_k", k=1)
    last = found.records[-1]["messages"]

    assert 0 == last[1]["weight"]
    assert 1 == last[-1]["weight"]


def test_what_cannot_be_written_as_text_is_refused():
    assert ("supervised", "dpo") == (method_of("expert_iteration"), method_of("dpo"))
    with pytest.raises(ConfigurationError, match="grpo"):
        method_of("grpo")
    with pytest.raises(TrainingError, match="others"):
        lines_of(model(), ["step"], method="dpo", seed=1, iteration=0)
