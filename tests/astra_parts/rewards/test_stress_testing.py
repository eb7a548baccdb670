import json
import math
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


def test_long_probes_are_told_apart_where_their_probability_cannot():
    """The defect A15: 0.0 for every probe of ordinary length."""
    fluent, odd = (
        tiny_node(0.0, score=0.0, probe_score=0.0, target_logprobs=(each,) * 120)
        for each in (-2.6, -7.0)
    )

    assert [0.0] == rewards_of(odd, likelihood="probability")
    assert [-2.6, -7.0] == pytest.approx(rewards_of(fluent, odd, likelihood_weight=1.0))


def test_excess_costs_only_what_is_not_tolerated():
    nodes = [
        tiny_node(0.0, score=0.0, probe_score=0.0, target_logprobs=logprobs)
        for logprobs in ((-2.0, -4.0), (-1.0,))
    ]
    options = {"likelihood": "excess_nll", "tolerated_nll": 2.5, "likelihood_weight": 1.0}

    assert [-0.5, 0.0] == pytest.approx(rewards_of(*nodes, **options))


def test_a_probe_without_tokens_is_defined():
    nothing = tiny_node(0.0, score=0.0, probe_score=0.0, target_logprobs=())
    expected = {"probability": 1.0, "mean_logprob": 0.0, "excess_nll": 0.0}
    for name, likelihood in expected.items():
        assert [likelihood] == rewards_of(nothing, likelihood=name, likelihood_weight=1.0)


def test_each_weight_counts_its_own_term():
    expected = {"likelihood_weight": math.exp(-8.0), "joint_weight": 0.6, "response_weight": 0.4}
    for name, term in expected.items():
        weights = {**dict.fromkeys(expected, 0.0), name: 1.0}
        assert [term] == pytest.approx(rewards_of(NODE, likelihood="probability", **weights))


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
