from functools import cache

import pytest
from each_row import each_row
from tiny_training import sampler_of

from astra_core.algorithm import Algorithm, off_policy
from astra_core.algorithms.dpo import DPO
from astra_core.config import Choice, GenerationConfiguration, Section
from astra_core.errors import ConfigurationError
from astra_core.registry import find
from astra_core.samplers.tree import TreeSampler
from astra_parts.testing import tiny_graph, tiny_node, tiny_prompts, tiny_system


@cache
def shared_system():
    return tiny_system()


class Undemanding(Algorithm):
    """Needs nothing and keeps nothing."""

    def flatten(self, graph):
        return list(graph.nodes())

    def collate(self, steps):
        raise NotImplementedError

    def step(self, batch):
        raise NotImplementedError


def test_an_algorithm_without_state_or_weights_need_not_say_so():
    algorithm = Undemanding(Section(), system=shared_system())
    algorithm.load_state(algorithm.state())

    assert {} == algorithm.state()
    assert () == algorithm.parameters()
    assert {} == algorithm.remember([])


def test_the_steps_of_an_experience_are_those_of_its_graphs_in_order():
    graphs = [tiny_graph(tiny_node(0.1), tiny_node(0.2)), tiny_graph(), tiny_graph(tiny_node(0.3))]

    steps = Undemanding(Section(), system=shared_system()).flatten_all(graphs)
    assert [0.1, 0.2, 0.3] == [step.reward for step in steps]


def test_only_an_algorithm_that_compares_siblings_asks_for_them():
    single = TreeSampler.Options(tree_width=1)

    Undemanding.check_needs(Section(), single)
    DPO.check_needs(DPO.Options(), TreeSampler.Options(tree_width=2))
    with pytest.raises(ConfigurationError) as caught:
        DPO.check_needs(DPO.Options(), single)
    assert str(caught.value) == (
        "rollouts.sampler.options.tree_width must be at least 2 for DPO, which compares siblings, "
        "got 1; raise it or choose another training.algorithm"
    )


def test_a_sampler_of_ones_own_need_not_have_a_width():
    DPO.check_needs(DPO.Options(), Section())


def test_rollouts_make_steps():
    (graph,) = sampler_of(shared_system()).roll_out(tiny_prompts(1), iteration=0)

    assert len(Undemanding(Section(), system=shared_system()).flatten_all([graph])) == 12


@each_row(
    "name, probe, told",
    [
        *((name, {"temperature": 0.7}, "temperature 0.7:") for name in ("reinforce", "rloo")),
        *((name, {"top_k": 20, "top_p": 0.9}, "top_k 20, top_p 0.9:") for name in ("grpo", "ppo")),
        ("grpo", {"repetition_penalty": 1.2}, "repetition_penalty 1.2:"),
        ("grpo", {"max_new_tokens": 8}, None),
        ("dpo", {"temperature": 0.7}, None),
    ],
)
def test_probes_of_other_probabilities_than_the_attackers_are_told(name, probe, told):
    line = off_policy(
        find("algorithm", Choice(name=name)).options, GenerationConfiguration(**probe)
    )

    assert (told is None) == (not line)
    assert line.startswith(f"system.probe has {told} probes are not sampled" if told else "")
