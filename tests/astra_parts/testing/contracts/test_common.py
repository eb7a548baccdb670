import pytest

from astra_parts.testing import tiny_system
from astra_parts.testing.contracts.common import (
    are_close,
    are_equal,
    models_of,
    promise,
    rewarded_graphs,
    weights_of,
)


def test_a_broken_promise_is_an_assertion_error_with_its_words():
    promise(holds=True, words="all is well")
    with pytest.raises(AssertionError, match=r"^broken promise: all is well$"):
        promise(holds=False, words="all is well")


def test_weights_are_copies_of_all_models():
    system = tiny_system(1, reference_seed=2)
    before = weights_of(system)
    next(iter(system.reference.model.parameters())).data.add_(1.0)

    assert 3 == len(models_of(system))
    assert not are_equal(before, weights_of(system))


def test_rounding_alone_is_close():
    assert are_close(1.0, 1.0 + 1e-6)
    assert not are_close(1.0, 1.001)


def test_the_trees_of_the_contracts_differ_in_reward():
    graphs = rewarded_graphs()

    assert 1 < len({node.reward for graph in graphs for node in graph.nodes()})
