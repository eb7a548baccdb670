import pytest
import torch

from astra_core.algorithms.movement import FIGURES
from astra_parts.algorithms.policy_batch import PolicyStep
from astra_parts.algorithms.sft import copied_batch, copying_loss
from astra_parts.testing import tiny_graph, tiny_node

GRAPH = tiny_graph(tiny_node(0.1), tiny_node(0.9), tiny_node(0.5))


@pytest.mark.parametrize(
    ("pairs", "expected"), [("best_worst", {0.9: 1.0}), ("all", {0.9: 2.0, 0.5: 1.0})]
)
def test_chosen_probes_are_copied_once_per_sibling_they_beat(pairs, expected, make_algorithm):
    steps = make_algorithm("sft", pairs=pairs).flatten(GRAPH)

    assert expected == {step.node.reward: step.advantage for step in steps}


def test_the_loss_is_the_negative_log_likelihood(make_algorithm):
    algorithm = make_algorithm("sft")
    batch = algorithm.collate(algorithm.flatten(GRAPH))
    loss, metrics = algorithm.step(batch)
    logprobs = algorithm.system.attacker.continuation_logprobs([(4, 5, 0)], [(2, 3, 0)])[0]

    assert -sum(logprobs) == pytest.approx(float(loss.detach()), rel=1e-5)
    assert -sum(logprobs) / 3 == pytest.approx(metrics["copied_nll_nats"], rel=1e-5)
    assert 3.0 == batch.weight


LONG = tiny_node(1.0, probe_ids=(2, 3, 0))
SHORT = tiny_node(1.0, probe_ids=(6, 0), context_ids=(5, 0))
MODES = ("token_mean", "sequence_mean")


def nll(system, node):
    """Of every token, by a pass of the probe alone."""
    (own,) = system.attacker.continuation_logprobs([node.context_ids], [node.probe_ids])
    return [-value for value in own]


def loss_and_gradient(system, steps, mode):
    batch = copied_batch(steps, system, aggregation=mode)
    loss, _ = copying_loss(system, batch, aggregation=mode)
    parameters = list(system.attacker.model.parameters())
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    found = [gradient.flatten() for gradient in gradients if gradient is not None]
    return float(loss.detach()), torch.cat(found), batch.weight


# 3 tokens copied twice and 2 tokens copied half a time; or 2 + 0.5 probes.
@pytest.mark.parametrize(("mode", "weight"), [("token_mean", 7.0), ("sequence_mean", 2.5)])
def test_a_batch_weighs_as_much_as_is_copied(system, mode, weight):
    steps = [PolicyStep(LONG, 2.0), PolicyStep(SHORT, 0.5)]

    assert weight == pytest.approx(copied_batch(steps, system, aggregation=mode).weight)


def test_the_loss_is_the_weighted_likelihood_of_the_probes(system):
    steps = [PolicyStep(LONG, 2.0), PolicyStep(SHORT, 0.5)]
    long, short = nll(system, LONG), nll(system, SHORT)
    by_token, by_probe = (loss_and_gradient(system, steps, mode)[0] for mode in MODES)

    assert 2.0 * sum(long) + 0.5 * sum(short) == pytest.approx(by_token, rel=1e-4)
    assert 2.0 * sum(long) / 3 + 0.5 * sum(short) / 2 == pytest.approx(by_probe, rel=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_a_probe_of_weight_two_is_the_probe_twice(system, mode):
    once = loss_and_gradient(system, [PolicyStep(LONG, 2.0), PolicyStep(SHORT, 1.0)], mode)
    twice = loss_and_gradient(system, [PolicyStep(own, 1.0) for own in (LONG, SHORT, LONG)], mode)

    assert once[0] == pytest.approx(twice[0], rel=1e-5)
    assert once[2] == pytest.approx(twice[2])
    torch.testing.assert_close(once[1], twice[1], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_a_probe_of_weight_zero_is_not_copied(system, mode):
    without = loss_and_gradient(system, [PolicyStep(LONG, 1.0)], mode)
    beside = loss_and_gradient(system, [PolicyStep(LONG, 1.0), PolicyStep(SHORT, 0.0)], mode)

    assert without[0] == pytest.approx(beside[0], rel=1e-5)
    assert without[2] == beside[2]
    torch.testing.assert_close(without[1], beside[1], rtol=1e-3, atol=1e-5)


def test_tokens_that_are_not_trained_are_not_copied(system):
    node = tiny_node(1.0, probe_mask=(True, False, True))
    loss, _, weight = loss_and_gradient(system, [PolicyStep(node, 1.0)], "token_mean")
    own = nll(system, node)

    assert own[0] + own[2] == pytest.approx(loss, rel=1e-4)
    assert 2.0 == weight


def test_the_metric_is_the_mean_over_tokens_whatever_they_weigh(system):
    batch = copied_batch(
        [PolicyStep(LONG, 2.0), PolicyStep(SHORT, 0.5)], system, aggregation="token_mean"
    )
    _, metrics = copying_loss(system, batch, aggregation="token_mean")
    tokens = nll(system, LONG) + nll(system, SHORT)

    assert {"copied_nll_nats", *FIGURES} == set(metrics)
    assert sum(tokens) / 5 == pytest.approx(metrics["copied_nll_nats"], rel=1e-4)
