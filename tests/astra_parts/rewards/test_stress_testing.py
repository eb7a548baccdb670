import json
from pathlib import Path

import pytest
from each_row import each_row

from astra_parts.rewards.stress_testing import StressTestingReward
from astra_parts.testing import tiny_graph, tiny_node

VECTORS = Path(__file__).parents[2] / "vectors" / "astra_reward.json"
NODE = tiny_node(0.0, score=0.4, probe_score=0.6, target_logprobs=(-3.0, -5.0))


def rewards_of(*nodes, **options):
    reward = StressTestingReward(StressTestingReward.Options(**options))
    (graph,) = reward.assign([tiny_graph(*nodes)])
    return [node.reward for node in graph.nodes()]


def test_with_the_probability_of_the_probe_it_is_the_reward_of_astra():
    for case in json.loads(VECTORS.read_text(encoding="utf-8"))["cases"]:
        turns = zip(
            case["probe"], case["response"], case["target_token_logps_of_probe"], strict=True
        )
        nodes = [
            tiny_node(
                0.0,
                score=0.9 if "bad" in response else 0.2,
                probe_score=0.9 if "bad" in probe else 0.2,
                target_logprobs=tuple(logprobs),
            )
            for probe, response, logprobs in turns
        ]

        found = rewards_of(*nodes, likelihood="probability")
        assert case["expected"] == pytest.approx(found, rel=1e-5)


@each_row(
    ("options", "likelihood"),
    # Four nats per token: one more than the three that are tolerated.
    [
        ({}, -4.0),
        ({"likelihood": "excess_nll"}, -1.0),
        ({"likelihood": "probability"}, 0.000335463),
    ],
)
def test_the_option_says_what_likelihood_means(options, likelihood):
    expected = 0.025 * likelihood + 0.1 * 0.6 + 0.1 * 0.4

    assert [expected] == pytest.approx(rewards_of(NODE, **options))


@each_row(
    "change",
    [
        {"likelihood_weight": 1.0},
        {"joint_weight": 1.0},
        {"response_weight": 1.0},
        {"likelihood": "excess_nll", "tolerated_nll": 1.0},
    ],
)
def test_every_option_changes_the_reward(change):
    plain = {"likelihood": change.get("likelihood", "mean_logprob")}

    assert rewards_of(NODE, **plain) != pytest.approx(rewards_of(NODE, **change))


def test_turns_are_rewarded_where_they_stand_and_failed_ones_with_0():
    failed = tiny_node(9.0, failure="TargetError: no answer")
    leaf = tiny_node(0.0, score=1.0, target_logprobs=(-2.0,))
    inner = tiny_node(0.0, leaf, failed, score=1.0, target_logprobs=(-1.0,))

    assert [0.175, 0.15, 0.15, 0.0] == pytest.approx(rewards_of(inner, leaf))
    assert [] == rewards_of()
