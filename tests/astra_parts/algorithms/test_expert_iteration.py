import pytest

from astra_core.samplers.tree import TreeSampler
from astra_parts.algorithms.expert_iteration import ExpertIteration
from astra_parts.testing import tiny_graph, tiny_node

GRAPH = tiny_graph(
    tiny_node(0.5, tiny_node(0.1), tiny_node(0.9)), tiny_node(0.2, tiny_node(0.2), tiny_node(0.0))
)


def weights(algorithm, graph=GRAPH):
    return {step.node.path: step.advantage for step in algorithm.flatten(graph)}


def test_selection_matches_neural_interactive_proofs(make_algorithm, vector_cases):
    for case in vector_cases("nip_expert_iteration_selection"):
        rewards = case["rewards_per_round"]
        if "expected_selected" in case:
            algorithm = make_algorithm(
                "expert_iteration", selection="threshold", threshold=case["threshold"]
            )
            kept = [index for index, copies in enumerate(algorithm.copies(rewards)) if copies]
            assert case["expected_selected"] == kept
            continue
        algorithm = make_algorithm(
            "expert_iteration",
            selection="reward_weighted",
            minimum=case.get("weighting_minimum"),
            exploration=case.get("weighting_epsilon", 0.01),
        )
        # Their last case ends in nan: equal rewards; uniform is what is recommended.
        uniform = [1 / len(rewards)] * len(rewards)
        shares = case.get("expected_probabilities", uniform)
        expected = [len(rewards) * share for share in shares]
        assert expected == pytest.approx(algorithm.copies(rewards), rel=1e-5)


def test_the_best_rollouts_are_copied_and_shared_turns_count_twice(make_algorithm):
    # Sums over turns: 0.6, 1.4, 0.4, 0.2.
    assert {(0,): 1.0, (0, 1): 1.0} == weights(make_algorithm("expert_iteration", k=1))
    assert {(0,): 2.0, (0, 0): 1.0, (0, 1): 1.0} == weights(make_algorithm("expert_iteration", k=2))


def test_a_fraction_of_each_prompts_rollouts_is_copied_but_at_least_one(make_algorithm):
    half, few = (make_algorithm("expert_iteration", fraction=share) for share in (0.5, 0.1))

    assert {(0,): 2.0, (0, 0): 1.0, (0, 1): 1.0} == weights(half)
    assert {(0,): 1.0, (0, 1): 1.0} == weights(few)


def test_a_turn_that_is_copied_twice_counts_twice_in_loss_and_weight(make_algorithm):
    algorithm = make_algorithm("expert_iteration", k=2)
    steps = algorithm.flatten(GRAPH)
    once = algorithm.collate([step for step in steps if step.advantage == 1.0])
    whole = algorithm.collate(steps)

    assert (6.0, 12.0) == (once.weight, whole.weight)
    # The three turns hold the same tokens, so the mean is the same.
    assert float(algorithm.step(once)[0].detach()) / 6 == pytest.approx(
        float(algorithm.step(whole)[0].detach()) / 12
    )


def test_nothing_above_the_threshold_is_nothing_to_copy(make_algorithm):
    algorithm = make_algorithm("expert_iteration", selection="threshold", threshold=9.0)

    assert {} == weights(algorithm)
    assert {"rollouts": 4.0, "copied_rollouts": 0.0} == algorithm.remember([GRAPH])


def test_a_threshold_needs_no_siblings():
    options = ExpertIteration.Options(selection="threshold")

    ExpertIteration.check_needs(options, TreeSampler.Options(tree_width=1))
