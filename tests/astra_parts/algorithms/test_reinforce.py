import pytest
import torch

from astra_core.errors import ConfigurationError
from astra_core.samplers.tree import TreeSampler
from astra_parts.algorithms.reinforce import REINFORCE
from astra_parts.testing import tiny_graph, tiny_node

pytestmark = pytest.mark.routes

GRAPH = tiny_graph(tiny_node(0.2), tiny_node(0.4), tiny_node(0.9))


def advantages(algorithm, *graphs):
    return [step.advantage for step in algorithm.flatten_all(graphs or [GRAPH])]


@pytest.mark.parametrize(
    ("baseline", "expected"),
    [
        ("none", [0.2, 0.4, 0.9]),
        ("mean", [-0.3, -0.1, 0.4]),
        ("running", [0.2, 0.4, 0.9]),
        # Each less the mean of the other two.
        ("leave_one_out", [-0.45, -0.15, 0.6]),
    ],
)
def test_advantages_are_returns_less_the_baseline(baseline, expected, make_algorithm):
    assert expected == pytest.approx(advantages(make_algorithm("reinforce", baseline=baseline)))


def test_the_mean_is_that_of_the_whole_experience(make_algorithm):
    algorithm = make_algorithm("reinforce")

    assert [-0.5, 0.5] == advantages(
        algorithm, tiny_graph(tiny_node(0.0)), tiny_graph(tiny_node(1.0))
    )


def test_a_probe_is_credited_with_the_turns_after_it(make_algorithm):
    algorithm = make_algorithm("reinforce", baseline="none", discount=0.5)
    graph = tiny_graph(tiny_node(0.1, tiny_node(0.4), tiny_node(0.8)))

    assert [0.1 + 0.5 * 0.6, 0.4, 0.8] == pytest.approx(advantages(algorithm, graph))


def test_the_running_mean_survives_a_checkpoint(make_algorithm):
    algorithm, resumed = (make_algorithm("reinforce", baseline="running") for _ in range(2))
    algorithm.remember([GRAPH])
    resumed.load_state(algorithm.state())

    assert advantages(algorithm) == advantages(resumed)
    assert 0.5 == pytest.approx(float(resumed.state()["running_mean"]))
    algorithm.remember([tiny_graph(tiny_node(0.1))])
    resumed.remember([tiny_graph(tiny_node(0.1))])
    assert algorithm.state() == resumed.state()


def test_only_the_baseline_of_siblings_needs_siblings():
    single = TreeSampler.Options(tree_width=1)
    REINFORCE.check_needs(REINFORCE.Options(baseline="running"), single)

    with pytest.raises(ConfigurationError, match="baseline 'leave_one_out'"):
        REINFORCE.check_needs(REINFORCE.Options(baseline="leave_one_out"), single)


@pytest.mark.parametrize(
    ("importance", "expected"), [("none", 1.0), ("full", 3.0), ("truncated", 2.0)]
)
def test_importance_weights_the_gradient(importance, expected, make_algorithm, gradient_of):
    node = tiny_node(1.0)
    plain = make_algorithm("reinforce", baseline="none", importance="none")
    now = plain.system.attacker.continuation_logprobs([node.context_ids], [node.probe_ids])[0]
    # Every token three times as likely as when it was sampled.
    old = tuple((torch.tensor(now) - torch.tensor(3.0).log()).tolist())
    graph = tiny_graph(tiny_node(1.0, probe_logprobs=old))

    def gradient(algorithm):
        return gradient_of(algorithm, [algorithm.collate(algorithm.flatten(graph))])

    weighted = make_algorithm("reinforce", baseline="none", importance=importance, max_ratio=2.0)
    wanted = expected * gradient(plain)
    # Of sums of large terms little may be left, with the rounding of the terms: entries are held to
    # the largest one. Processors differ by up to 3e-6 of it; a wrong weight is off by a half.
    size = float(wanted.abs().max())
    torch.testing.assert_close(wanted, gradient(weighted), rtol=1e-4, atol=3e-5 * size)
