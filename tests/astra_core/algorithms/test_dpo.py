"""DPO as a plug-in: what it adds to the mathematics of ``functional.preference``."""

import math
from functools import cache

import pytest
import torch
from each_row import each_row

from astra_core.algorithms.dpo import DPO
from astra_core.algorithms.functional import preference
from astra_core.algorithms.movement import FIGURES
from astra_core.errors import ConfigurationError
from astra_core.samplers.tree import TreeSampler
from astra_parts.algorithms.functional import margin_losses
from astra_parts.testing import tiny_graph, tiny_node, tiny_system

pytestmark = pytest.mark.routes

BEST = tiny_node(
    0.9,
    tiny_node(0.5, probe_ids=(6, 0)),
    tiny_node(0.35, probe_ids=(3, 3, 0)),
    tiny_node(0.3, probe_ids=(14, 15, 0)),
    probe_ids=(7, 8, 9, 0),
    context_ids=(5, 0),
)
WORST = tiny_node(0.1, tiny_node(1.0), probe_ids=(4, 0), context_ids=(5, 0))
MIDDLE = tiny_node(0.45, probe_ids=(10, 11, 0), context_ids=(5, 0))
GRAPH = tiny_graph(WORST, BEST, MIDDLE)


@cache
def system():
    return tiny_system()


def learner(kind, **options):
    return kind(kind.Options(**options), system=system())


def outcome(algorithm, graph=GRAPH):
    """Loss and gradient of everything in one batch."""
    loss, metrics = algorithm.step(algorithm.collate(algorithm.flatten(graph)))
    return float(loss.detach()), gradient(loss), metrics


def gradient(loss):
    system().attacker.model.zero_grad(set_to_none=True)
    loss.backward()
    return torch.cat([p.grad.flatten() for p in system().attacker.model.parameters()])


def log_ratios(nodes):
    """By a plain pass without padding, one node at a time."""
    found = []
    for node in nodes:
        (own,) = system().attacker.continuation_logprobs([node.context_ids], [node.probe_ids])
        found.append(math.fsum(own) - math.fsum(node.reference_logprobs))
    return torch.tensor(found)


@each_row(
    ("options", "losses"),
    [
        ({}, lambda c, r: preference.dpo_losses(c, r, beta=0.1)),
        ({"beta": 0.7}, lambda c, r: preference.dpo_losses(c, r, beta=0.7)),
        ({"loss": "hinge"}, lambda c, r: margin_losses.hinge_losses(c, r, beta=0.1)),
        (
            {"loss": "conservative", "label_smoothing": 0.2},
            lambda c, r: margin_losses.cdpo_losses(c, r, beta=0.1, label_smoothing=0.2),
        ),
        (
            {"loss": "robust", "label_smoothing": 0.2},
            lambda c, r: margin_losses.robust_dpo_losses(c, r, beta=0.1, label_smoothing=0.2),
        ),
        ({"loss": "ipo"}, lambda c, r: margin_losses.ipo_losses(c, r, beta=0.1)),
        ({"loss": "ipo", "beta": 0.7}, lambda c, r: margin_losses.ipo_losses(c, r, beta=0.7)),
    ],
)
def test_a_loss_is_the_sum_of_the_functional_one_over_the_pairs(options, losses):
    algorithm = learner(DPO, **options)
    pairs = algorithm.flatten(GRAPH)
    loss, _ = algorithm.step(algorithm.collate(pairs))

    chosen, rejected = (
        log_ratios([getattr(pair, side) for pair in pairs]) for side in ("chosen", "rejected")
    )
    assert len(pairs) == 2
    assert float(losses(chosen, rejected).sum()) == pytest.approx(float(loss.detach()), rel=1e-4)


def test_the_loss_of_an_untrained_attacker_is_log_two_per_pair():
    graph = tiny_graph(
        *(
            tiny_node(
                node.reward,
                context_ids=node.context_ids,
                probe_ids=node.probe_ids,
                reference_logprobs=system().attacker.continuation_logprobs(
                    [node.context_ids], [node.probe_ids]
                )[0],
            )
            for node in (BEST, WORST)
        )
    )

    loss, _, metrics = outcome(learner(DPO), graph)
    assert math.log(2) == pytest.approx(loss, abs=1e-5)
    assert metrics["reward_margin"] == pytest.approx(0.0, abs=1e-5)


@each_row("loss", ["sigmoid", "ipo"])
def test_neither_padding_nor_micro_batches_change_loss_or_gradient(loss):
    algorithm = learner(DPO, loss=loss, pairs="all", margin=0.01)
    pairs = algorithm.flatten(GRAPH)
    value, whole, _ = outcome(algorithm)
    assert len(pairs) == 6
    for size in (1, 2, 4):
        parts = [
            algorithm.step(algorithm.collate(pairs[start : start + size]))[0]
            for start in range(0, len(pairs), size)
        ]
        total = torch.stack(parts).sum()
        assert value == pytest.approx(float(total.detach()), rel=1e-5)
        # Sums in another order; the same comparison in float64 is in models/test_logprobs.py.
        torch.testing.assert_close(whole, gradient(total), rtol=1e-4, atol=1e-4)


@each_row(
    ("base", "change"),
    [
        *(
            ({"loss": loss}, change)
            for loss in ("sigmoid", "ipo")
            for change in (
                {"pairs": "all"},
                {"margin": 0.5},
                {"backup": "max"},
                {"backup": "mean"},
                {"length_normalised": True},
                {"beta": 0.5},
            )
        ),
        ({"backup": "max"}, {"discount": 0.3}),
        ({}, {"loss": "hinge"}),
        ({}, {"loss": "conservative", "label_smoothing": 0.2}),
        ({"loss": "conservative", "label_smoothing": 0.2}, {"loss": "robust"}),
        ({"loss": "robust"}, {"label_smoothing": 0.2}),
        ({"loss": "conservative"}, {"label_smoothing": 0.2}),
    ],
)
def test_every_option_changes_the_gradient(base, change):
    _, before, _ = outcome(learner(DPO, **base))
    _, after, _ = outcome(learner(DPO, **{**base, **change}))

    assert float((before - after).abs().max()) > 1e-4


@each_row("loss", ["sigmoid", "hinge"])
def test_label_smoothing_is_refused_where_it_has_no_effect(loss):
    with pytest.raises(ConfigurationError, match="label_smoothing"):
        DPO.Options.read({"loss": loss, "label_smoothing": 0.2}, where="options")


@each_row("name", ["sigmoid", "ipo"])
def test_a_step_in_the_direction_of_the_gradient_prefers_the_chosen_probe(name):
    system = tiny_system(1)
    algorithm = DPO(DPO.Options(loss=name), system=system)
    pairs = algorithm.flatten(GRAPH)
    optimizer = torch.optim.SGD(system.attacker.model.parameters(), lr=1e-4)
    margins, losses = [], []
    for _ in range(5):
        loss, metrics = algorithm.step(algorithm.collate(pairs))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        margins.append(metrics["reward_margin"])
        losses.append(float(loss.detach()))

    assert losses == sorted(losses, reverse=True)
    assert margins == sorted(margins)


def test_metrics_are_means_over_the_pairs():
    algorithm = learner(DPO)
    pairs = algorithm.flatten(GRAPH)
    _, metrics = algorithm.step(algorithm.collate(pairs))
    chosen, rejected = (
        log_ratios([getattr(pair, side) for pair in pairs]) for side in ("chosen", "rejected")
    )

    assert {
        "reward_accuracy": float((chosen > rejected).float().mean()),
        "reward_margin": float(0.1 * (chosen - rejected).mean()),
        "chosen_reward": float(0.1 * chosen.mean()),
        "rejected_reward": float(0.1 * rejected.mean()),
    } == pytest.approx(
        {name: metric for name, metric in metrics.items() if name not in FIGURES},
        rel=1e-4,
        abs=1e-5,
    )


def test_tokens_that_are_not_trained_carry_no_gradient():
    graphs = [
        tiny_graph(
            tiny_node(
                0.9, probe_ids=(7, last), probe_mask=(True, False), reference_logprobs=(-1, -1)
            ),
            tiny_node(0.1, probe_ids=(5,), probe_mask=(True,), reference_logprobs=(-1,)),
        )
        for last in (3, 9)
    ]
    (first, gradient_one, _), (second, gradient_two, _) = (
        outcome(learner(DPO), graph) for graph in graphs
    )

    assert first == pytest.approx(second)
    torch.testing.assert_close(gradient_one, gradient_two)


def test_an_algorithm_that_compares_siblings_asks_for_some():
    DPO.check_needs(DPO.Options(), TreeSampler.Options(tree_width=2))
    with pytest.raises(ConfigurationError, match="tree_width must be at least 2 for"):
        DPO.check_needs(DPO.Options(), TreeSampler.Options(tree_width=1))
