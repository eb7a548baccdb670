import math
from dataclasses import replace

import pytest
from each_row import each_row

from astra_core.config import Section
from astra_core.errors import ConfigurationError, PluginError
from astra_core.reward import ALL_SIGNALS, Reward, check_signals, mean_parts, reward_graphs
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.tree import TreeSampler
from astra_parts.rewards.stress_testing import StressTestingReward
from astra_parts.testing import check_reward, tiny_graph, tiny_node, tiny_prompts, tiny_system


class Flat(Reward):
    """Remembers nothing."""

    def assign(self, graphs):
        return list(graphs)


def test_a_reward_without_a_memory_need_not_say_so():
    reward = Flat(Section())
    reward.remember([tiny_graph()])
    reward.load_state(reward.state())

    assert {} == reward.state()
    check_reward(Flat)


class Needy(Reward):
    """Needs all there is, and notes what it is shown."""

    needs = ALL_SIGNALS

    def prepare(self, system, prompts):
        self.shown = (system, prompts)

    def assign(self, graphs):
        return list(graphs)


@each_row(
    ("lacking", "message"),
    [
        (
            "target_logprobs",
            r"a target that gives log-probabilities .*\(reward terms, likelihood: {un",
        ),
        ("reference", "must have reference log-probabilities, got a sampler"),
        ("goal", "must have prompts with a goal, got none; name the column"),
    ],
)
def test_a_signal_that_is_lacking_is_one_line_with_the_way_out(lacking, message):
    check_signals("needy", Needy, Section(), gives=ALL_SIGNALS)
    with pytest.raises(ConfigurationError, match=message) as refused:
        check_signals("needy", Needy, Section(), gives=ALL_SIGNALS - {lacking})

    assert str(refused.value).startswith("reward 'needy' must have ")
    assert "\n" not in str(refused.value)


@each_row(
    ("reward", "weight"),
    [(AdversarialReward, "nll_weight"), (StressTestingReward, "likelihood_weight")],
)
def test_a_likelihood_that_counts_for_nothing_needs_none(reward, weight):
    assert {"target_logprobs"} == reward.needs_with(reward.Options())
    assert set() == reward.needs_with(reward.Options(**{weight: 0.0}))


def test_a_sampler_shows_its_reward_who_talks():
    system, prompts, reward = tiny_system(), tiny_prompts(2), Needy(Section())
    TreeSampler(TreeSampler.Options(), system=system, prompts=prompts, reward=reward, seed=0)

    assert (system, prompts) == reward.shown


class ScoreItself(Reward):
    """Knows nothing of turns that nobody judged, whose score is NaN."""

    def assign(self, graphs):
        return [
            replace(graph, children=tuple(replace(n, reward=n.score) for n in graph.children))
            for graph in graphs
        ]


UNJUDGED = tiny_node(0.7, response_scores=(None,), response_unjudged=("empty",))


def test_a_turn_that_nobody_judged_has_no_reward_whatever_a_reward_makes_of_it():
    (graph,) = reward_graphs(ScoreItself(Section()), [tiny_graph(UNJUDGED, tiny_node(0.5))])

    assert [0.0, 0.5] == [node.reward for node in graph.nodes()]
    failed = tiny_node(0.0, failure="gone", score=math.nan)
    with pytest.raises(PluginError, match="finite number, got nan"):
        reward_graphs(ScoreItself(Section()), [tiny_graph(failed)])


def test_the_parts_of_a_reward_are_means_over_judged_turns():
    graph = tiny_graph(UNJUDGED, tiny_node(0.5), tiny_node(0.1))

    assert {"score": 0.3} == pytest.approx(mean_parts([graph], lambda n: {"score": n.score}))
