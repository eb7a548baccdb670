import pytest
import torch

from astra_core.errors import ConfigurationError, DataError
from astra_parts.testing import tiny_graph, tiny_language_model, tiny_node, tiny_system


def test_every_token_is_rewarded_by_how_much_likelier_the_teacher_finds_it(make_algorithm):
    node = tiny_node(9.0, probe_logprobs=(-1.0, -2.0, -3.0), reference_logprobs=(-3.0, -2.0, -1.0))
    (step,) = make_algorithm("distillation", coefficient=0.5).flatten(tiny_graph(node))

    assert [-1.0, 0.0, 1.0] == pytest.approx(step.advantages)


@pytest.mark.parametrize(("horizon", "expected"), [(1, -2.0), (2, -1.75), (None, -1.5)])
def test_a_horizon_says_how_many_tokens_answer_for_one(horizon, expected, make_algorithm):
    # Log-ratios -2, 0.5 and 1, each half of what it was for the token before.
    node = tiny_node(9.0, probe_logprobs=(-1.0,) * 3, reference_logprobs=(-3.0, -0.5, 0.0))
    algorithm = make_algorithm("distillation", discount=0.5, horizon=horizon)

    assert expected == pytest.approx(algorithm.flatten(tiny_graph(node))[0].advantages[0])


def test_the_target_teaches_what_it_thinks_of_the_attackers_own_context(make_algorithm, experience):
    algorithm = make_algorithm("distillation", teacher="target")
    step = algorithm.flatten(experience[0])[0]
    node = step.node
    opinion = algorithm.system.target.language_model.continuation_logprobs(
        [node.context_ids], [node.probe_ids]
    )[0]
    expected = [ours - own for ours, own in zip(opinion, node.probe_logprobs, strict=True)]

    assert expected == pytest.approx(step.advantages, abs=1e-5)


def test_a_step_brings_the_attacker_nearer_to_its_teacher(make_algorithm, experience):
    algorithm = make_algorithm("distillation")
    nodes = [node for graph in experience[:2] for node in graph.nodes()]
    contexts, probes = [n.context_ids for n in nodes], [n.probe_ids for n in nodes]

    def advantage_of_now():
        """Mean over the sampled tokens of the advantage, reweighted to the attacker as it is."""
        now = algorithm.system.attacker.continuation_logprobs(contexts, probes)
        weighted = [
            (teacher - old) * (new - old)
            for node, own in zip(nodes, now, strict=True)
            for teacher, old, new in zip(
                node.reference_logprobs, node.probe_logprobs, own, strict=True
            )
        ]
        return sum(weighted) / len(weighted)

    batch = algorithm.collate(algorithm.flatten_all(experience[:2]))
    (algorithm.step(batch)[0] / batch.weight).backward()
    before = advantage_of_now()
    with torch.no_grad():
        for parameter in algorithm.system.attacker.model.parameters():
            parameter.sub_(1e-2 * parameter.grad)

    assert advantage_of_now() > before


def test_a_target_with_another_tokenizer_cannot_teach(make_algorithm):
    system = tiny_system(5, target=tiny_language_model(6, vocabulary=None))

    with pytest.raises(ConfigurationError, match="must share the attacker's tokenizer"):
        make_algorithm("distillation", system, teacher="target")


def test_a_teacher_that_was_not_asked_is_an_error(make_algorithm):
    graph = tiny_graph(tiny_node(0.5, reference_logprobs=()))

    with pytest.raises(DataError, match="reference log-probabilities"):
        make_algorithm("distillation").flatten(graph)
