import math
import statistics
from dataclasses import replace

import pytest
from each_row import each_row

from astra_core.algorithms.credit import CreditedTurn, CreditOptions, credited_turns
from astra_core.errors import ConfigurationError, DataError
from astra_parts.algorithms.grpo import GRPO, RunTurns, run_means, turns_by_prompt
from astra_parts.testing import tiny_graph, tiny_node, tiny_prompts, tiny_system

GRAPH = tiny_graph(tiny_node(0.2), tiny_node(0.4), tiny_node(0.9))


def advantages(algorithm, graph=GRAPH):
    return [step.advantage for step in algorithm.flatten(graph)]


def test_siblings_are_standardised_with_the_sample_spread(make_algorithm):
    # Deviations -0.3, -0.1, 0.4; spread sqrt(0.26 / 2).
    expected = [value / math.sqrt(0.13) for value in (-0.3, -0.1, 0.4)]

    assert expected == pytest.approx(advantages(make_algorithm("grpo")))


def test_without_division_groups_keep_their_scale(make_algorithm):
    found = advantages(make_algorithm("grpo", scale="none"))

    assert [-0.3, -0.1, 0.4] == pytest.approx(found)


def test_conversations_weigh_alike_however_many_turns_they_have(make_algorithm):
    graph = tiny_graph(tiny_node(0.2, tiny_node(0.2), tiny_node(0.2)), tiny_node(0.6))
    algorithm = make_algorithm("grpo", compare="conversations", backup="none")

    # Run means 0.2 and 0.6: mean 0.4, sample spread sqrt(0.08).
    expected = [value / math.sqrt(0.08) for value in (-0.2, 0.2, -0.2, -0.2)]
    assert expected == pytest.approx(advantages(algorithm, graph))


@pytest.mark.parametrize("scale", ["none", "batch"])
@pytest.mark.parametrize("compare", ["conversations", "runs"])
def test_means_are_always_scaled(compare, scale, make_algorithm):
    with pytest.raises(ConfigurationError, match="scale must be 'group'"):
        make_algorithm("grpo", compare=compare, scale=scale)


def run_of(prompt, run_id, *nodes):
    return tiny_graph(*nodes, prompt=replace(prompt, run_id=run_id))


def over(algorithm, graphs):
    return [step.advantage for step in algorithm.flatten_all(graphs)]


def test_runs_of_a_prompt_are_compared_as_in_nexrl(make_algorithm, vector_cases):
    cases = [case for case in vector_cases("nexrl_grpo_outcome_advantage") if case["run_ids"]]
    assert len(cases) > 1
    for case in cases:
        rewards = [sum(row) for row in case["token_level_rewards"]]
        graphs = [
            run_of(tiny_prompts(1)[0], run, *(tiny_node(r) for r, n in pairs if n == run))
            for pairs in [list(zip(rewards, case["run_ids"], strict=True))]
            for run in sorted(set(case["run_ids"]))
        ]
        algorithm = make_algorithm("grpo", compare="runs", backup="none")

        expected = [row[0] for row in case["expected_advantages"]]
        assert expected == pytest.approx(over(algorithm, graphs), rel=1e-5, abs=1e-6)


def test_only_runs_of_one_prompt_are_compared(make_algorithm):
    first, second = tiny_prompts(2)
    graphs = [
        run_of(first, 0, tiny_node(0.2)),
        run_of(second, 0, tiny_node(0.9)),
        run_of(first, 1, tiny_node(0.6)),
        run_of(second, 1, tiny_node(0.9)),
    ]
    half = 1 / math.sqrt(2.0)

    for compare in ("prompt", "runs"):
        algorithm = make_algorithm("grpo", compare=compare)
        assert [-half, 0.0, half, 0.0] == pytest.approx(over(algorithm, graphs))
        assert {"groups": 2.0, "flat_groups": 1.0} == algorithm.remember(graphs)
        dropped = make_algorithm("grpo", compare=compare, drop_flat_groups=True)
        assert [-half, half] == pytest.approx(over(dropped, graphs))
    # Alone after its context, no probe teaches anything.
    assert [0.0] * 4 == over(make_algorithm("grpo"), graphs)


def test_a_long_run_weighs_as_much_as_a_short_one_or_as_its_turns(make_algorithm):
    prompt = tiny_prompts(1)[0]
    long = run_of(prompt, 0, tiny_node(0.2, tiny_node(0.2, tiny_node(0.2))))
    graphs = [long, run_of(prompt, 1, tiny_node(0.6))]

    # Run means 0.2 and 0.6: mean 0.4, sample spread sqrt(0.08).
    expected = [value / math.sqrt(0.08) for value in (-0.2, -0.2, -0.2, 0.2)]
    by_run = make_algorithm("grpo", compare="runs", backup="none")
    assert expected == pytest.approx(over(by_run, graphs))
    # Turns 0.2, 0.2, 0.2 and 0.6: mean 0.3, sample spread 0.2.
    by_turn = make_algorithm("grpo", compare="prompt", backup="none")
    assert [-0.5, -0.5, -0.5, 1.5] == pytest.approx(over(by_turn, graphs))
    centred = make_algorithm("grpo", compare="prompt", backup="none", scale="none")
    assert [-0.1, -0.1, -0.1, 0.3] == pytest.approx(over(centred, graphs))


def test_runs_are_flat_when_their_means_are(make_algorithm):
    prompt = tiny_prompts(1)[0]
    graphs = [run_of(prompt, 0, tiny_node(0.2), tiny_node(0.6)), run_of(prompt, 1, tiny_node(0.4))]

    assert 1.0 == make_algorithm("grpo", compare="runs").remember(graphs)["flat_groups"]
    assert 0.0 == make_algorithm("grpo", compare="prompt").remember(graphs)["flat_groups"]


def test_flat_groups_stay_with_advantage_zero_or_are_dropped(make_algorithm):
    graph = tiny_graph(tiny_node(0.2, tiny_node(0.5), tiny_node(0.5)), tiny_node(0.9))

    assert [0.0, 0.0] == advantages(make_algorithm("grpo"), graph)[2:]
    assert 2 == len(advantages(make_algorithm("grpo", drop_flat_groups=True), graph))


@pytest.mark.parametrize(
    ("aggregation", "weight"),
    # Three probes of 3 tokens; the longest a probe may be is 6.
    [("token_mean", 9), ("sequence_mean", 3), ("sequence_sum", 3), ("constant_length", 18)],
)
def test_what_the_loss_is_divided_by(aggregation, weight, make_algorithm):
    algorithm = make_algorithm("grpo", aggregation=aggregation)

    assert weight == algorithm.collate(algorithm.flatten(GRAPH)).weight


def loss_at(algorithm, log_ratios, reward):
    """The loss per unit of weight of a probe of this reward and these log-ratios."""
    now = algorithm.system.attacker.continuation_logprobs([(4, 5, 0)], [(2, 3, 0)])[0]
    old = tuple(value - ratio for value, ratio in zip(now, log_ratios, strict=True))
    nodes = [tiny_node(reward, probe_logprobs=old), tiny_node(1.0 - reward)]
    step = algorithm.flatten(tiny_graph(*nodes))[0]
    batch = algorithm.collate([step])
    return float(algorithm.step(batch)[0].detach()) / batch.weight


def test_clips_and_ratio_levels_by_hand(make_algorithm):
    far = math.log(2.0)
    plain = {"scale": "none"}
    # Advantage 0.5 for reward 1, -0.5 for reward 0; ratios 2, 1, 1.
    token = make_algorithm("grpo", **plain)
    assert -0.5 * (1.2 + 1 + 1) / 3 == pytest.approx(loss_at(token, (far, 0, 0), 1.0), rel=1e-4)
    assert 0.5 * (2 + 1 + 1) / 3 == pytest.approx(loss_at(token, (far, 0, 0), 0.0), rel=1e-4)
    higher = make_algorithm("grpo", **plain, clip_high=0.5)
    assert -0.5 * (1.5 + 1 + 1) / 3 == pytest.approx(loss_at(higher, (far, 0, 0), 1.0), rel=1e-4)
    dual = make_algorithm("grpo", **plain, dual_clip=1.5)
    assert 0.5 * (1.5 + 1 + 1) / 3 == pytest.approx(loss_at(dual, (far, 0, 0), 0.0), rel=1e-4)
    # The geometric mean of 2, 1, 1 is exp(log 2 / 3) = 1.26.
    sequence = make_algorithm("grpo", **plain, ratio="sequence", clip_high=0.5)
    expected = -0.5 * math.exp(far / 3)
    assert expected == pytest.approx(loss_at(sequence, (far, 0, 0), 1.0), rel=1e-4)


def test_kl_in_the_loss_is_added_per_token(make_algorithm):
    node = tiny_node(1.0)
    plain, priced = (
        make_algorithm("grpo", **options)
        for options in ({}, {"kl": "loss", "kl_estimator": "k1", "kl_coefficient": 0.5})
    )
    now = plain.system.attacker.continuation_logprobs([node.context_ids], [node.probe_ids])[0]

    def loss(algorithm):
        batch = algorithm.collate(algorithm.flatten(tiny_graph(node, tiny_node(0.0))))
        return float(algorithm.step(batch)[0].detach())

    # Both probes are the same tokens, and the reference gives -1.5 to each.
    expected = 2 * 0.5 * sum(value + 1.5 for value in now)
    assert expected == pytest.approx(loss(priced) - loss(plain), rel=1e-4)


def test_scaled_by_the_batch_groups_of_all_graphs_share_one_spread(make_algorithm):
    algorithm = make_algorithm("grpo", scale="batch", backup="none")
    graphs = [GRAPH, tiny_graph(tiny_node(0.4), tiny_node(0.6))]
    found = [step.advantage for step in algorithm.flatten_all(graphs)]

    spread = statistics.stdev([0.2, 0.4, 0.9, 0.4, 0.6])
    assert [value / spread for value in (-0.3, -0.1, 0.4, -0.1, 0.1)] == pytest.approx(found)


def test_clipped_rewards_change_the_advantages(make_algorithm):
    algorithm = make_algorithm("grpo", scale="none", clip_reward=0.5)

    # Rewards 0.2, 0.4 and 0.5 after the clip.
    mean = 1.1 / 3
    expected = [value - mean for value in (0.2, 0.4, 0.5)]
    assert expected == pytest.approx(advantages(algorithm))


def test_a_reward_that_is_no_number_is_refused_and_never_ranked(make_algorithm):
    graph = tiny_graph(tiny_node(0.2), tiny_node(math.nan), tiny_node(0.9))
    for name in ("grpo", "rloo", "reinforce", "ppo", "dpo", "expert_iteration"):
        with pytest.raises(DataError, match="must be finite, got nan"):
            make_algorithm(name).flatten_all([graph])


class OfOneTree(GRPO):
    """Learns from first turns alone."""

    def flatten(self, graph):
        return [step for step in super().flatten(graph) if len(step.node.path) == 1]


class OfAllTrees(OfOneTree):
    """Asks for it by itself."""

    def flatten_all(self, graphs):
        return [step for graph in graphs for step in self.flatten(graph)]


@each_row("options", [{"compare": "runs"}, {"compare": "prompt"}, {"scale": "batch"}])
def test_a_flatten_of_one_tree_is_refused_where_several_are_looked_at(options):
    system = tiny_system(1)
    with pytest.raises(ConfigurationError, match=r"OfOneTree' must override flatten_all\(\)"):
        OfOneTree(GRPO.Options(**options), system=system)

    assert OfOneTree(GRPO.Options(), system=system)
    assert OfAllTrees(GRPO.Options(**options), system=system)


FIRST, SECOND = tiny_prompts(2)


def grouped_run(prompt, run_id, *rewards):
    nodes = [tiny_node(reward) for reward in rewards]
    return tiny_graph(*nodes, prompt=replace(prompt, run_id=run_id))


def compared(graphs):
    return turns_by_prompt(graphs, lambda own: credited_turns(own, CreditOptions(backup="none")))


def test_turns_of_all_runs_of_a_prompt_are_one_group_in_the_order_of_the_graphs():
    graphs = [
        grouped_run(FIRST, 0, 0.1, 0.2),
        grouped_run(SECOND, 0, 0.3),
        grouped_run(FIRST, 1, 0.4),
    ]
    found = compared(graphs)

    assert [0.1, 0.2, 0.3, 0.4] == [turn.value for turn in found.turns]
    assert [0, 0, 1, 0] == [turn.group for turn in found.turns]
    assert [0, 0, 0, 1] == list(found.runs)


def test_a_failed_turn_is_in_no_group(failing):
    graph = grouped_run(FIRST, 1, 0.1, 0.2)
    found = compared([replace(graph, children=(failing(graph.children[0]), graph.children[1]))])

    assert ([0.2], [1]) == ([turn.value for turn in found.turns], list(found.runs))


def test_a_run_counts_once_with_its_mean():
    turns = [
        CreditedTurn(tiny_node(0.0), group, value)
        for group, value in ((1, 8.0), (0, 1.0), (0, 3.0), (0, 5.0))
    ]
    means = run_means(RunTurns(turns, [0, 0, 1, 0]))

    assert [(0, 3.0), (0, 3.0), (1, 8.0)] == [(turn.group, turn.value) for turn in means]
