"""What sets IPO apart from DPO; what they share is in ``test_dpo.py``."""

import pytest
import torch
from each_row import each_row

from astra_core.algorithms.ipo import IPO
from astra_core.errors import ConfigurationError
from astra_core.testing import tiny_graph, tiny_node

CHOSEN, REJECTED = (2, 3, 0), (6, 7, 8, 0)


def graph_with_gap(system, gap):
    """A pair whose chosen probe leads by ``gap`` nats, all of it against its reference."""
    nodes = []
    for ids, reward, lead in ((CHOSEN, 0.9, gap), (REJECTED, 0.1, 0.0)):
        (own,) = system.attacker.continuation_logprobs([(4, 5, 0)], [ids])
        reference = tuple(value - lead / len(ids) for value in own)
        nodes.append(tiny_node(reward, probe_ids=ids, reference_logprobs=reference))
    return tiny_graph(*nodes)


def outcome(algorithm, graph):
    """Loss, metrics and the size of the gradient on the attacker."""
    loss, metrics = algorithm.step(algorithm.collate(algorithm.flatten(graph)))
    parameters = list(algorithm.system.attacker.model.parameters())
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    squares = [float(part.square().sum()) for part in gradients if part is not None]
    return float(loss.detach()), metrics, sum(squares) ** 0.5


# (gap - 1 / (2 beta))^2: at beta 0.1 the gap aimed at is 5 nats, at beta 0.5 it is 1.
@pytest.mark.parametrize(
    ("beta", "gap", "expected"),
    [(0.1, 0.0, 25.0), (0.1, 3.0, 4.0), (0.1, 7.0, 4.0), (0.5, 0.0, 1.0), (0.5, -1.0, 4.0)],
)
def test_the_loss_is_the_squared_distance_from_the_wanted_gap(
    beta, gap, expected, make_algorithm, system
):
    loss, metrics, _ = outcome(make_algorithm("ipo", beta=beta), graph_with_gap(system, gap))

    assert expected == pytest.approx(loss, abs=1e-3)
    assert beta * gap == pytest.approx(metrics["reward_margin"], abs=1e-5)


def test_a_pair_that_is_settled_is_left_alone(make_algorithm, system):
    algorithm = make_algorithm("ipo", beta=0.1)
    _, _, settled = outcome(algorithm, graph_with_gap(system, 5.0))
    _, _, open_ = outcome(algorithm, graph_with_gap(system, 4.0))

    assert settled < 1e-3 * open_


@pytest.mark.parametrize(("gap", "grows"), [(3.0, True), (7.0, False)])
def test_a_gap_is_pulled_to_its_size_from_both_sides(gap, grows, make_algorithm, system):
    algorithm = make_algorithm("ipo", beta=0.1)
    batch = algorithm.collate(algorithm.flatten(graph_with_gap(system, gap)))
    optimizer = torch.optim.SGD(algorithm.system.attacker.model.parameters(), lr=1e-4)
    loss, before = algorithm.step(batch)
    loss.backward()
    optimizer.step()
    _, after = algorithm.step(batch)

    assert grows is (after["reward_margin"] > before["reward_margin"])


def test_with_length_normalisation_the_gap_is_one_of_means(make_algorithm, system):
    # 6 nats over the 3 tokens of the chosen probe are 2 per token: (2 - 5)^2.
    algorithm = make_algorithm("ipo", beta=0.1, length_normalised=True)
    loss, _, _ = outcome(algorithm, graph_with_gap(system, 6.0))

    assert 9.0 == pytest.approx(loss, abs=1e-3)


def test_what_is_remembered_are_figures_of_groups_and_pairs(make_algorithm):
    algorithm = make_algorithm("ipo", margin=0.1)
    graphs = [
        tiny_graph(tiny_node(0.9), tiny_node(0.1), tiny_node(0.5)),
        tiny_graph(tiny_node(0.3), tiny_node(0.3)),
    ]

    assert {"groups": 2.0, "flat_groups": 1.0, "pairs": 1.0} == algorithm.remember(graphs)
    assert {} == dict(algorithm.state())


@each_row("beta", [0.0, -0.1, float("nan")])
def test_a_gap_without_a_size_is_refused(beta):
    with pytest.raises(ConfigurationError, match="beta"):
        IPO.Options.read({"beta": beta}, where="options")
