import math
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
import torch
from each_row import each_row
from tiny_training import TALK, sampler_of

from astra_core.algorithms.dpo import DPO
from astra_core.config import Choice
from astra_core.errors import ConfigurationError
from astra_core.registry import BUILT_INS, build
from astra_core.training.harness import Experience, Harness, experience_figures
from astra_parts.testing import tiny_graph, tiny_node, tiny_system


@cache
def shared_system():
    return tiny_system(1, config=TALK)


def harness(*, num_episodes=3, seed=1, shuffle="trees", **options):
    algorithm = DPO(DPO.Options(**options), system=shared_system())
    sampler = sampler_of(shared_system(), seed=seed)
    return Harness(sampler, algorithm, num_episodes=num_episodes, shuffle=shuffle)


@pytest.fixture(scope="module")
def experience():
    return harness(pairs="all", margin=0.0).experience(0)


def names(batches):
    """Every pair of these batches, named by its log-probabilities, which are unique."""
    return [
        tuple(row.tolist()) for batch in batches for row in batch.reference_logprobs.sum(1)[:, None]
    ]


def test_an_experience_holds_rewarded_graphs_and_their_steps(experience):
    own = harness(pairs="all", margin=0.0)

    assert len(experience.graphs) == 3
    assert any(node.reward for graph in experience.graphs for node in graph.nodes())
    assert list(experience.steps) == own.algorithm.flatten_all(experience.graphs)
    assert own.sampler.episodes(0, 3) == tuple(graph.prompt for graph in experience.graphs)


def test_an_experience_is_remembered_after_it_was_rewarded():
    own = harness()
    first = own.experience(0)
    again = own.experience(0)

    assert [n.probe_ids for g in first.graphs for n in g.nodes()] == [
        n.probe_ids for g in again.graphs for n in g.nodes()
    ]
    assert again.metrics["rollout/novelty"] < first.metrics["rollout/novelty"]


def test_rollouts_that_exist_are_rewarded_and_used():
    graph = tiny_graph(tiny_node(0.0, score=0.9), tiny_node(0.0, score=0.1))
    found = harness().experience(0, graphs=[graph])

    assert len(found.steps) == 1
    assert found.graphs[0].children[0].reward > found.graphs[0].children[1].reward


class Collated(tuple):
    """A batch that is its steps."""

    __slots__ = ()
    weight = property(len)
    num_tokens = property(len)


@each_row("batch_size", [1, 4, 7, 1000])
def test_every_step_comes_once_per_epoch_in_batches_of_the_size(experience, batch_size):
    own = harness(pairs="all", margin=0.0)
    batches = list(own.batches(experience, epoch=0, batch_size=batch_size))
    sizes = [int(batch.weight) for batch in batches]

    assert sum(sizes) == len(experience.steps) > 7
    assert {batch_size} >= set(sizes[:-1])
    whole = own.batches(experience, epoch=0, batch_size=10**6)
    assert Counter(names(batches)) == Counter(names(whole))


def test_the_order_depends_on_epoch_iteration_and_seed_alone(experience):
    def order(*, epoch=0, seed=1):
        own = harness(pairs="all", margin=0.0, seed=seed)
        return names(own.batches(experience, epoch=epoch, batch_size=1))

    assert order() == order()
    assert order() != order(epoch=1)
    assert order() != order(seed=2)


@pytest.fixture(scope="module")
def five_graphs():
    return harness(num_episodes=5).experience(0).graphs


@each_row("name", BUILT_INS["algorithm"])
def test_whole_trees_are_shuffled_with_every_algorithm(name, five_graphs):
    sampler = sampler_of(shared_system())
    algorithm = build("algorithm", Choice(name=name), system=shared_system())
    own = Harness(sampler, algorithm, num_episodes=5)
    experience = own.experience(0, graphs=five_graphs)
    trees = [{id(node) for node in graph.nodes()} for graph in experience.graphs]
    own.algorithm.collate = Collated
    order = [step for batch in own.batches(experience, epoch=0, batch_size=2) for step in batch]
    of_step = [next(at for at, tree in enumerate(trees) if id(step.node) in tree) for step in order]

    assert sorted(map(id, experience.steps)) == sorted(map(id, order))
    assert of_step != sorted(of_step)
    assert len(set(of_step)) == 1 + sum(one != other for one, other in pairwise(of_step))


def test_steps_are_shuffled_one_by_one_where_that_is_asked_for(experience):
    orders = {}
    for shuffle in ("trees", "steps"):
        own = harness(pairs="all", margin=0.0, shuffle=shuffle)
        orders[shuffle] = names(own.batches(experience, epoch=0, batch_size=1))

    assert Counter(orders["trees"]) == Counter(orders["steps"])
    assert orders["trees"] != orders["steps"]


def test_steps_that_are_nodes_stay_with_their_tree():
    own = harness(num_episodes=4)
    own.algorithm.collate = Collated
    found = own.experience(0)
    nodes = [node for graph in found.graphs for node in graph.nodes()]
    # One level after the other, so that in their own order trees are mixed.
    steps = tuple(sorted(nodes, key=lambda node: len(node.path)))
    batches = own.batches(replace(found, steps=steps), epoch=0, batch_size=3)
    order = [node for batch in batches for node in batch]
    tree = {id(node): at for at, graph in enumerate(found.graphs) for node in graph.nodes()}

    assert sorted(map(id, nodes)) == sorted(map(id, order))
    assert 3 == sum(tree[id(one)] != tree[id(other)] for one, other in pairwise(order))


def test_a_step_without_a_node_is_shuffled_by_itself():
    own = harness()
    own.algorithm.collate = Collated
    experience = replace(own.experience(0), steps=tuple(range(9)))
    batches = list(own.batches(experience, epoch=0, batch_size=4))

    assert [4, 4, 1] == [len(batch) for batch in batches]
    assert list(range(9)) == sorted(step for batch in batches for step in batch)


def test_metrics_are_means_over_turns_that_did_not_fail():
    graph = tiny_graph(
        tiny_node(0.0, score=0.5, probe_score=0.2),
        tiny_node(0.0, score=1.0, probe_score=0.4, probe_ids=(2, 3, 4, 5, 0)),
        tiny_node(0.0, score=math.nan, failure="TargetError: no answer", response_scores=()),
        tiny_node(0.0, response_scores=(None,), response_unjudged=("empty",)),
    )
    metrics = harness().experience(0, graphs=[graph]).metrics

    # Four turns say the same, so each n-gram of one was said three times besides.
    novelty = 1 / math.sqrt(4)
    expected = {
        "rollout/reward": 0.75 - 0.3 * 0.3 + 0.2 * novelty,
        "rollout/novelty": novelty,
        "rollout/score": 0.75,
        "rollout/score_share": 1.0,  # two turns lie on one line
        "rollout/probe_score": 0.3,
        "rollout/target_nll": 2.0,
        "rollout/kl_nats": 0.5 * 4,
        "rollout/probe_tokens": 4.0,
        "rollout/num_nodes": 4.0,
        "rollout/num_replies": 3.0,
        "rollout/num_failed": 1.0,
        "rollout/num_unjudged": 1.0,
        "rollout/num_steps": 1.0,
    }
    rollout = {name: value for name, value in metrics.items() if name.startswith("rollout/")}
    assert expected == pytest.approx(rollout)


def test_metrics_of_nothing_are_zero():
    metrics = harness().experience(0, graphs=[tiny_graph()]).metrics

    assert {0.0} == set(metrics.values())


def test_a_harness_counts_its_experiences_itself():
    own = harness(margin=0.0)
    first, second = own.experience(), own.experience()

    assert (0, 1) == (first.iteration, second.iteration)
    assert first.graphs == harness(margin=0.0).experience(0).graphs
    assert first.graphs != second.graphs


def test_an_experience_gives_its_batches_once_per_epoch():
    own = harness(margin=0.0)
    twice = Harness(own.sampler, own.algorithm, num_episodes=3, batch_size=2, num_epochs=2)
    experience = twice.experience()
    epochs = [list(own.batches(experience, epoch=epoch, batch_size=2)) for epoch in range(2)]

    assert names(experience) == names(epochs[0]) + names(epochs[1])
    assert max(batch.weight for batch in experience) == 2


def test_the_loss_of_a_step_is_the_mean_over_its_batch():
    own = harness(margin=0.0)
    batch = next(iter(own.experience()))
    loss, logs = own.step(batch)
    whole, figures = own.algorithm.step(batch)

    assert torch.equal(loss, whole / batch.weight)
    assert logs == figures


def test_an_experience_made_by_hand_has_no_batches():
    with pytest.raises(ConfigurationError, match=r"use harness\.batches"):
        list(Experience(0, (), (), {}, 0.0))


def test_means_are_over_the_turns_that_were_judged():
    graph = tiny_graph(tiny_node(1.0), tiny_node(0.0), tiny_node(9.0, failure="no answer"))

    figures = experience_figures([graph], 5)

    assert 0.5 == figures["rollout/reward"]
    assert (3.0, 1.0, 5.0) == tuple(
        figures[f"rollout/{name}"] for name in ("num_nodes", "num_failed", "num_steps")
    )


@each_row("graphs", [[], [tiny_graph(tiny_node(1.0, failure="no answer"))]])
def test_nothing_judged_counts_as_zero(graphs):
    assert 0.0 == experience_figures(graphs, 0)["rollout/reward"]
