import pytest
import torch

from astra_parts.testing import tiny_graph, tiny_node

GRAPH = tiny_graph(tiny_node(0.2), tiny_node(0.4), tiny_node(0.9))


def test_a_probe_is_judged_against_the_mean_of_its_siblings(make_algorithm):
    steps = make_algorithm("rloo", kl="none").flatten(GRAPH)

    assert [-0.45, -0.15, 0.6] == pytest.approx([step.advantage for step in steps])


def test_by_default_kl_is_taken_off_the_reward(make_algorithm):
    graph = tiny_graph(tiny_node(0.5), tiny_node(0.5, reference_logprobs=(-1.0,) * 3))
    steps = make_algorithm("rloo").flatten(graph)

    # The first lies 3 * 0.5 nats above the reference, at 0.05 a nat; the second lies on it.
    assert [-0.075, 0.075] == pytest.approx([step.advantage for step in steps])


def test_whitening_is_over_the_whole_experience(make_algorithm):
    other = tiny_graph(tiny_node(0.0), tiny_node(8.0))
    steps = make_algorithm("rloo", kl="none", whiten_advantages=True).flatten_all([GRAPH, other])
    found = torch.tensor([step.advantage for step in steps], dtype=torch.float64)

    assert 0.0 == pytest.approx(float(found.mean()), abs=1e-9)
    assert 1.0 == pytest.approx(float(found.std(correction=0)))
    assert float(found[:3].abs().max()) < 0.2


def test_the_loss_is_minus_the_clipped_ratio_of_the_whole_probe(make_algorithm):
    algorithm = make_algorithm("rloo", kl="none")
    now = algorithm.system.attacker.continuation_logprobs([(4, 5, 0)], [(2, 3, 0)])[0]
    # The probe as a whole is exp(0.15) as likely as when it was sampled, each token exp(0.05).
    old = tuple(value - 0.05 for value in now)
    better = tiny_node(1.0, probe_logprobs=old)
    worse = tiny_node(0.0, probe_logprobs=old)
    batch = algorithm.collate(algorithm.flatten(tiny_graph(better, worse)))
    loss, metrics = algorithm.step(batch)

    # Advantages 1 and -1 at the same ratio cancel; at exp(0.3) > 1.2 the better one is held at 1.2.
    assert 0.0 == pytest.approx(float(loss.detach()), abs=1e-5)
    assert 0.0 == metrics["clipped"]
    further = tuple(value - 0.1 for value in now)
    pair = [tiny_node(reward, probe_logprobs=further) for reward in (1.0, 0.0)]
    loss, metrics = algorithm.step(algorithm.collate(algorithm.flatten(tiny_graph(*pair))))
    assert float(torch.tensor(0.3).exp()) - 1.2 == pytest.approx(float(loss.detach()), abs=1e-4)
    assert 0.5 == metrics["clipped"]
    assert 2.0 == batch.weight
