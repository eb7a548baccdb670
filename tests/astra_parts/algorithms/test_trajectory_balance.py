"""Trajectory balance: gaps of log-ratios follow gaps in reward."""

import math

import pytest
import torch

from astra_core.errors import ConfigurationError
from astra_parts.algorithms.trajectory_balance import TrajectoryBalance
from astra_parts.testing import tiny_graph, tiny_node

FIRST, SECOND = (2, 3, 0), (6, 7, 8, 0)


def graph_with_lead(system, lead, *, rewards=(0.9, 0.4)):
    """Two siblings; the first leads by ``lead`` nats against its reference."""
    nodes = []
    for ids, reward, nats in zip((FIRST, SECOND), rewards, (lead, 0.0), strict=True):
        (own,) = system.attacker.continuation_logprobs([(4, 5, 0)], [ids])
        reference = tuple(value - nats / len(ids) for value in own)
        nodes.append(tiny_node(reward, probe_ids=ids, reference_logprobs=reference))
    return tiny_graph(*nodes)


def loss_of(algorithm, graph):
    loss, figures = algorithm.step(algorithm.collate(algorithm.flatten(graph)))
    return float(loss.detach()), figures


# (lead - 0.5 / temperature)^2: at 0.1 the lead aimed at is 5 nats, at 0.5 it is 1.
@pytest.mark.parametrize(
    ("temperature", "lead", "expected"),
    [(0.1, 0.0, 25.0), (0.1, 3.0, 4.0), (0.1, 7.0, 4.0), (0.1, 5.0, 0.0), (0.5, 0.0, 1.0)],
)
def test_the_lead_aimed_at_is_the_gap_in_reward_over_the_temperature(
    temperature, lead, expected, make_algorithm, system
):
    algorithm = make_algorithm("trajectory_balance", temperature=temperature)
    loss, figures = loss_of(algorithm, graph_with_lead(system, lead))

    assert expected == pytest.approx(loss, abs=1e-3)
    assert temperature * lead == pytest.approx(figures["reward_margin"], abs=1e-5)


def test_siblings_that_are_worth_nearly_the_same_are_pulled_together(make_algorithm, system):
    # DPO would drive them apart as it does any pair; here a lead of 3 nats is 2.9 too many.
    algorithm = make_algorithm("trajectory_balance")
    batch = algorithm.collate(algorithm.flatten(graph_with_lead(system, 3.0, rewards=(0.41, 0.4))))
    optimizer = torch.optim.SGD(algorithm.system.attacker.model.parameters(), lr=1e-4)
    loss, before = algorithm.step(batch)
    loss.backward()
    optimizer.step()

    assert 2.9**2 == pytest.approx(float(loss.detach()), abs=1e-2)
    assert algorithm.step(batch)[1]["reward_margin"] < before["reward_margin"]


def test_the_optimum_is_the_reference_tilted_by_the_reward(make_algorithm, system):
    # log(attacker / reference) = reward / temperature + a constant, for every sibling: loss 0.
    rewards, nodes = (0.1, 0.35, 0.8), []
    for ids, reward in zip((FIRST, SECOND, (9, 2, 0)), rewards, strict=True):
        (own,) = system.attacker.continuation_logprobs([(4, 5, 0)], [ids])
        tilt = (reward / 0.2 - math.log(7.0)) / len(ids)
        reference = tuple(value - tilt for value in own)
        nodes.append(tiny_node(reward, probe_ids=ids, reference_logprobs=reference))
    algorithm = make_algorithm("trajectory_balance", temperature=0.2)

    assert 3 == len(algorithm.flatten(tiny_graph(*nodes)))
    assert 0.0 == pytest.approx(loss_of(algorithm, tiny_graph(*nodes))[0], abs=1e-6)


def test_a_first_turn_is_worth_what_it_leads_to(make_algorithm):
    graph = tiny_graph(
        tiny_node(0.0, tiny_node(1.0), tiny_node(0.6)),
        tiny_node(0.1, tiny_node(0.0), tiny_node(0.0)),
    )

    def gaps(**options):
        return [pair.gap for pair in make_algorithm("trajectory_balance", **options).flatten(graph)]

    assert [0.9 * 0.8 - 0.1, 0.4] == pytest.approx(gaps())
    assert [0.1, 0.4] == pytest.approx(gaps(backup="none"))


def test_a_batch_counts_pairs_and_tokens(make_algorithm):
    graph = tiny_graph(tiny_node(0.9), tiny_node(0.1), tiny_node(0.5))
    algorithm = make_algorithm("trajectory_balance")
    batch = algorithm.collate(algorithm.flatten(graph))

    assert 3.0 == batch.weight
    assert batch.pairs.num_tokens == batch.num_tokens
    assert [0.4, 0.8, 0.4] == pytest.approx(batch.gaps.tolist())
    assert {"groups": 1.0, "flat_groups": 0.0, "pairs": 3.0} == algorithm.remember([graph])


def test_an_attacker_without_a_temperature_is_refused():
    with pytest.raises(ConfigurationError, match="temperature"):
        TrajectoryBalance.Options.read({"temperature": 0.0}, where="options")
