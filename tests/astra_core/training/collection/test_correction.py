from dataclasses import replace

import pytest
import torch

from astra_core.algorithms import functional as fn
from astra_core.config import StalenessConfiguration
from astra_core.training.collection.correction import correct
from astra_parts.algorithms.grpo import GRPO
from astra_parts.algorithms.policy_batch import PolicyStep, policy_batch
from astra_parts.testing import tiny_agents, tiny_graph, tiny_node, tiny_system

NODE = tiny_node(0.9, probe_logprobs=(-1.0, -9.0, -2.5))


def configured(correction, cap=None):
    return StalenessConfiguration(max_versions=1, correction=correction, cap=cap)


def read(system, node):
    (found,) = system.attacker.continuation_logprobs([node.context_ids], [node.probe_ids])
    return found


@pytest.fixture(scope="module")
def system():
    return tiny_system(1)


@pytest.fixture(scope="module")
def graph():
    return tiny_graph(NODE, tiny_node(0.1, tiny_node(0.4)))


def test_probes_bear_what_the_attacker_says_now_and_weigh_by_the_capped_ratio(system, graph):
    (found,), figures = correct([graph], system, configured("token"))

    now = read(system, NODE)
    ratios = (torch.tensor(now) - torch.tensor(NODE.probe_logprobs)).exp()
    assert pytest.approx(now, rel=1e-6) == found.children[0].probe_logprobs
    torch.testing.assert_close(torch.tensor(found.children[0].probe_weights), ratios.clamp(max=2.0))
    assert 0.0 < figures["importance_capped"] < 1.0
    assert 0.0 < figures["importance_effective"] < 1.0


def test_a_sequence_has_one_weight(system, graph):
    (found,), _ = correct([graph], system, configured("sequence", cap=3.0))

    ratio = sum(read(system, NODE)) - sum(NODE.probe_logprobs)
    wanted = float(fn.importance_ratios(torch.tensor(ratio)).clamp(max=3.0))
    assert (pytest.approx(wanted, rel=1e-5),) == found.children[0].probe_weights


def test_a_probe_far_from_the_attacker_is_not_trained(system):
    near = tiny_node(0.1)
    near = replace(near, probe=replace(near.probe, logprobs=read(system, near)))

    (found,), figures = correct([tiny_graph(NODE, near)], system, configured("sequence_mask"))

    assert [False, True] == [any(node.probe_mask) for node in found.children]
    assert 0.5 == figures["importance_masked"]


def test_a_larger_cap_weighs_more(system, graph):
    def total(cap):
        (found,), _ = correct([graph], system, configured("token", cap))
        return sum(found.children[0].probe_weights)

    assert total(1.0) < total(2.0) < total(50.0)


def test_turns_are_read_by_the_agent_that_plays_them(system):
    graph = tiny_graph(tiny_node(0.9, tiny_node(0.4)))

    (found,), _ = correct([graph], tiny_agents(system), configured("token"))

    assert read(system, graph.children[0]) == found.children[0].probe_logprobs


def test_failed_turns_stay_and_no_turn_is_no_error(system):
    graph = tiny_graph(tiny_node(0.0, failure="no answer"))

    assert ([graph], {}) == correct([graph], system, configured("token"))


def test_the_loss_multiplies_by_the_weights(system):
    def loss(weights):
        node = replace(NODE, probe=replace(NODE.probe, weights=weights))
        batch = policy_batch([PolicyStep(node, 1.0)], system, aggregation="token_mean")
        algorithm = GRPO(GRPO.Options(), system=system)
        return float(algorithm.step(batch)[0].detach())

    assert pytest.approx(3.0 * loss(())) == loss((3.0,)) == loss((3.0,) * 3)
    assert loss((3.0, 1.0, 1.0)) != loss((1.0, 1.0, 3.0))


def test_probes_with_one_weight_and_with_one_per_token_share_a_batch(system):
    one = replace(NODE, probe=replace(NODE.probe, weights=(3.0,)))
    several = replace(NODE, probe=replace(NODE.probe, weights=(3.0, 2.0, 1.0)))

    steps = [PolicyStep(one, 2.0), PolicyStep(several, 1.0)]
    batch = policy_batch(steps, system, aggregation="token_mean")

    assert [[6.0] * 3, [3.0, 2.0, 1.0]] == batch.advantages.tolist()
