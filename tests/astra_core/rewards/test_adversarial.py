import math

import pytest
import torch
from each_row import each_row

from astra_core.rewards.adversarial import AdversarialReward
from astra_parts.testing import tiny_graph, tiny_node, tiny_prompts, tiny_system

BLUNT = {"probe_penalty": 0.0, "nll_weight": 0.0, "novelty_weight": 0.0}


def reward_of(node, **options):
    (graph,) = AdversarialReward(AdversarialReward.Options(**options)).assign([tiny_graph(node)])
    return graph.children[0].reward


def test_the_default_reward_of_a_turn():
    node = tiny_node(
        0.0, score=0.8, probe_score=0.5, target_logprobs=(-0.8, -2.8), probe_text="so kind"
    )

    # The reply gives 0.8, the probe costs 0.15, a nat above the floor 0.3, and novelty gives 0.2.
    assert 0.55 == pytest.approx(reward_of(node))


@each_row(
    ("option", "low", "high", "sign"),
    [
        ("response_weight", 0.5, 2.0, 1),
        ("probe_penalty", 0.1, 0.9, -1),
        ("nll_weight", 0.1, 0.5, -1),
        ("nll_floor", 1.0, 3.0, 1),
        ("novelty_weight", 0.1, 0.4, 1),
    ],
)
def test_an_option_moves_the_reward_in_its_direction(option, low, high, sign):
    node = tiny_node(0.0, score=0.8, probe_score=0.5, target_logprobs=(-0.8, -2.8))
    gain = reward_of(node, **{option: high}) - reward_of(node, **{option: low})

    assert sign * gain > 0.01


@each_row(("nll", "expected"), [(1.0, 0.0), (3.0, 0.0), (5.0, -0.2)])
def test_a_probe_likelier_than_the_floor_earns_nothing(nll, expected):
    node = tiny_node(0.0, target_logprobs=(-nll,) * 4)

    options = {**BLUNT, "nll_weight": 0.1, "nll_floor": 3.0}
    assert expected == pytest.approx(reward_of(node, **options))


def test_a_rare_success_earns_more_by_the_weight_of_diversity():
    def rewards(weight):
        reward = AdversarialReward(AdversarialReward.Options(**BLUNT, diversity_weight=weight))
        reward.prepare(tiny_system(), tiny_prompts(2))
        said = ("you are so kind",) * 3 + ("why now",)
        nodes = [tiny_node(0.0, score=1.0, probe_text=text) for text in said]
        graphs = reward.assign([tiny_graph(*nodes, tiny_node(0.0, score=0.0, probe_text="stop"))])
        return [node.reward for node in graphs[0].nodes()], reward.remember(graphs).get("diversity")

    assert rewards(0.0) == ([1.0] * 4 + [0.0], None)
    found, mean = rewards(0.5)
    gains = [0.5 * math.log(4 / 3)] * 3 + [0.5 * math.log(4)]
    assert found == pytest.approx([1.0 + gain for gain in gains] + [0.0])
    assert mean == pytest.approx(sum(gains) / 5)


def test_repeating_oneself_is_worth_less_and_is_forgotten_at_the_rate_of_the_decay():
    rewards = {}
    for decay in (0.0, 0.5, 1.0):
        reward = AdversarialReward(
            AdversarialReward.Options(**{**BLUNT, "novelty_weight": 1.0}, novelty_decay=decay)
        )
        graphs = [tiny_graph(tiny_node(0.0, probe_text="you are bad"))]
        other = [tiny_graph(tiny_node(0.0, probe_text="what now"))]
        for said in (graphs, other):
            reward.remember(said)
        rewards[decay] = reward.assign(graphs)[0].children[0].reward

    # Said once, two experiences ago; the other text shares no n-gram with it.
    assert {0.0: 1.0, 0.5: 1 / math.sqrt(1.5), 1.0: 1 / math.sqrt(2.0)} == pytest.approx(rewards)


def test_saying_the_same_in_one_experience_is_worth_less_than_saying_different_things():
    reward = AdversarialReward(AdversarialReward.Options(**{**BLUNT, "novelty_weight": 1.0}))
    same = tiny_graph(tiny_node(0.0), tiny_node(0.0))
    different = tiny_graph(tiny_node(0.0), tiny_node(0.0, probe_text="what now"))

    for graph, expected in ((same, 1 / math.sqrt(2)), (different, 1.0)):
        (given,) = reward.assign([graph])
        assert [expected] * 2 == pytest.approx([node.reward for node in given.children])
        assert [expected] * 2 == pytest.approx([node.novelty for node in given.children])


def test_a_failed_turn_earns_nothing_and_its_children_are_rewarded():
    failed = tiny_node(0.0, tiny_node(0.0, score=0.5), failure="TargetError", score=math.nan)
    (graph,) = AdversarialReward(AdversarialReward.Options(**BLUNT)).assign([tiny_graph(failed)])

    assert [0.0, 0.5] == [node.reward for node in graph.nodes()]


def test_the_memory_survives_a_checkpoint():
    options = AdversarialReward.Options()
    reward, resumed = AdversarialReward(options), AdversarialReward(options)
    graphs = [tiny_graph(tiny_node(0.0), tiny_node(0.0, probe_text="what now"))]
    reward.remember(graphs)
    reward.remember(graphs)
    resumed.load_state(reward.state())

    assert reward.assign(graphs) == resumed.assign(graphs)
    resumed.remember(graphs)
    assert not torch.equal(reward.state()["novelty"], resumed.state()["novelty"])
