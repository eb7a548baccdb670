import json
from pathlib import Path

import pytest
import torch
from each_row import each_row

from astra_core.algorithms.pairs import PairOptions, preference_batch, preference_pairs
from astra_parts.testing import tiny_graph, tiny_node, tiny_system

CASES = json.loads(
    (Path(__file__).parents[2] / "vectors" / "astra_dpo_flatten.json").read_text(encoding="utf-8")
)["cases"]


def rewards(pairs):
    return [(pair.chosen.reward, pair.rejected.reward) for pair in pairs]


def node_of(record):
    children = [node_of(child) for child in record["children"]]
    return tiny_node(record["reward"], *children, probe_text=record["probe"])


@each_row("case", CASES)
def test_pairs_are_those_of_astra_except_that_ties_are_none(case):
    graph = tiny_graph(*(node_of(child) for child in case["graph"]["children"]))
    found = preference_pairs(graph, PairOptions(margin=0.0))

    expected = case.get("expected_pairs", case.get("recommended_pairs"))
    assert [(pair["chosen"], pair["rejected"]) for pair in expected] == [
        (pair.chosen.probe_text, pair.rejected.probe_text) for pair in found
    ]


def test_pairs_come_breadth_first_with_the_best_and_the_worst_of_each_group():
    graph = tiny_graph(
        tiny_node(0.4, tiny_node(0.0), tiny_node(1.0)),
        tiny_node(0.9, tiny_node(0.2), tiny_node(0.8), tiny_node(0.5)),
        tiny_node(0.1),
    )

    assert [(0.9, 0.1), (1.0, 0.0), (0.8, 0.2)] == rewards(preference_pairs(graph, PairOptions()))


def test_siblings_below_a_turn_that_makes_no_pair_are_still_compared():
    graph = tiny_graph(tiny_node(0.5, tiny_node(0.0), tiny_node(1.0)))

    assert [(1.0, 0.0)] == rewards(preference_pairs(graph, PairOptions()))


def test_all_pairs_are_every_two_siblings_apart_by_more_than_the_margin():
    graph = tiny_graph(*map(tiny_node, (0.5, 0.9, 0.45, 0.1)))
    found = preference_pairs(graph, PairOptions(pairs="all"))

    assert {(0.9, 0.5), (0.9, 0.45), (0.9, 0.1), (0.5, 0.1), (0.45, 0.1)} == set(rewards(found))
    assert [round(p.chosen.reward - p.rejected.reward, 6) for p in found] == [
        round(pair.gap, 6) for pair in found
    ]


@each_row(("margin", "expected"), [(0.0, 1), (0.25, 0), (0.24, 1), (0.5, 0)])
def test_a_gap_up_to_the_margin_is_noise(margin, expected):
    graph = tiny_graph(tiny_node(0.5), tiny_node(0.75))

    assert expected == len(preference_pairs(graph, PairOptions(margin=margin)))


@each_row("pairs", ["best_worst", "all"])
def test_ties_never_make_a_pair(pairs):
    graph = tiny_graph(*(tiny_node(0.5) for _ in range(4)))

    assert [] == preference_pairs(graph, PairOptions(margin=0.0, pairs=pairs))


def test_failed_turns_and_turns_that_are_not_trained_make_no_pair():
    graph = tiny_graph(
        tiny_node(0.0, failure="TargetError"),
        tiny_node(0.0, probe_mask=(False,) * 3),
        tiny_node(0.6),
        tiny_node(0.9),
    )

    assert [(0.9, 0.6)] == rewards(preference_pairs(graph, PairOptions()))


BRANCHY = tiny_node(
    0.1, tiny_node(0.2, tiny_node(1.0)), tiny_node(0.6), tiny_node(0.9, failure="x")
)


@each_row(
    ("backup", "discount", "expected"),
    [
        ("none", 0.9, 0.1),
        ("max", 0.5, 0.1 + 0.5 * (0.2 + 0.5 * 1.0)),
        ("max", 0.1, 0.1 + 0.1 * 0.6),
        ("mean", 0.5, 0.1 + 0.5 * ((0.2 + 0.5 * 1.0) + 0.6) / 2),
        ("mean", 0.0, 0.1),
    ],
)
def test_later_turns_count_towards_an_earlier_one(backup, discount, expected):
    options = PairOptions(backup=backup, discount=discount)
    (pair, *_) = preference_pairs(tiny_graph(BRANCHY, tiny_node(-5.0)), options)

    assert expected + 5.0 == pytest.approx(pair.gap)


def test_the_backup_can_turn_a_pair_round():
    graph = tiny_graph(tiny_node(0.1, tiny_node(1.0)), tiny_node(0.5))

    assert [(0.5, 0.1)] == rewards(preference_pairs(graph, PairOptions()))
    backed = preference_pairs(graph, PairOptions(backup="max"))
    assert [(0.1, 0.5)] == rewards(backed)
    assert backed[0].gap == pytest.approx(0.1 + 0.9 - 0.5)


def test_a_batch_holds_chosen_probes_first_and_keeps_ids_logprobs_and_masks():
    chosen = tiny_node(
        0.9,
        context_ids=(4, 5, 6, 0),
        probe_ids=(7, 8, 9, 0),
        probe_mask=(True, False, True, True),
        reference_logprobs=(-1.0, -2.0, -3.0, -4.0),
    )
    rejected = tiny_node(
        0.1, context_ids=(3, 0), probe_ids=(5, 0), reference_logprobs=(-0.5, -0.25)
    )
    pairs = preference_pairs(tiny_graph(rejected, chosen), PairOptions())
    batch = preference_batch(pairs, tiny_system())

    assert [[7, 8, 9, 0], [5, 0]] == [
        batch.rows.continuation_ids[0].tolist(),
        batch.rows.continuation_ids[1, :2].tolist(),
    ]
    assert [[-1.0, -2.0, -3.0, -4.0], [-0.5, -0.25, 0.0, 0.0]] == batch.reference_logprobs.tolist()
    assert [[True, False, True, True], [True, True, False, False]] == batch.mask.tolist()
    assert batch.num_tokens == 12 == int(batch.rows.attention_mask.sum())
    assert batch.weight == 1.0
    assert batch.mask.dtype == torch.bool
