import pytest

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
