"""The contract of an algorithm."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from astra_core.algorithm import Algorithm
from astra_core.rollout import Graph, Node
from astra_core.seeding import torch_seeded
from astra_core.system import System
from astra_parts.testing.contracts.common import (
    SEED,
    are_close,
    are_equal,
    build_plugin,
    check_figures,
    failed_graph,
    gradients_of,
    models_of,
    promise,
    rewarded_graphs,
    weights_of,
)
from astra_parts.testing.tiny import tiny_graph, tiny_system


def check_algorithm(plugin: str | type[Algorithm], **options: Any) -> None:
    """Raises AssertionError unless an algorithm may be named under ``training.algorithm``.

    - Its options refuse unknown keys, and it is built as ``Class(options, system=system)``; its own
      weights start the same under any random state of torch.
    - ``flatten`` finds something to learn in trees of differing rewards, nothing in a graph without
      turns, in turns that failed and in turns without a trained token, such as those that another
      agent played. It gives the same steps twice.
    - ``collate`` returns a positive weight and the tokens the attacker reads; weights add up.
    - ``step`` returns a finite scalar whose gradient reaches only the attacker, changes no weight
      itself, and reports finite metrics.
    - The loss is a sum: of one batch it equals the sum over its steps, one by one, in any order.
    - ``load_state`` of ``state`` changes no loss.
    """
    # If the reference equalled the attacker, their difference would be only rounding.
    system = tiny_system(SEED, reference_seed=SEED + 1)
    algorithm: Algorithm = build_plugin("algorithm", plugin, options, system=system)
    with torch_seeded(SEED):
        twin: Algorithm = build_plugin("algorithm", plugin, options, system=system)
    promise(
        are_equal(algorithm.parameters(), twin.parameters()),
        "its own weights do not depend on torch's global random state",
    )
    graphs = rewarded_graphs(SEED + 1)
    steps = _check_flatten(algorithm, graphs)
    whole = algorithm.collate(steps)
    parts = [algorithm.collate([step]) for step in reversed(steps)]
    promise(whole.weight > 0.0, "the weight of a batch is positive")
    promise(are_close(whole.weight, sum(p.weight for p in parts)), "weights of batches add up")
    promise(whole.num_tokens > 0, "a batch counts the tokens the attacker reads")
    before = weights_of(system)
    loss = _check_step(algorithm, whole, system)
    single = sum(float(algorithm.step(part)[0].detach()) for part in parts)
    promise(are_close(loss, single), f"the loss is a sum over steps, got {loss} against {single}")
    promise(are_equal(before, weights_of(system)), "flatten, collate and step move no weight")
    again: Algorithm = build_plugin("algorithm", plugin, options, system=system)
    again.load_state(algorithm.state())
    resumed = float(again.step(again.collate(steps))[0].detach())
    promise(are_close(loss, resumed), "a loss is the same after load_state(state())")


def _check_flatten(algorithm: Algorithm, graphs: Sequence[Graph]) -> list[Any]:
    steps = algorithm.flatten_all(graphs)
    num_again = len(algorithm.flatten_all(graphs))
    promise(bool(steps), "flatten finds something to learn in trees of differing rewards")
    promise(len(steps) == num_again, "flatten gives the same steps twice")
    promise(len(algorithm.flatten(tiny_graph())) == 0, "a graph without turns teaches nothing")
    promise(len(algorithm.flatten(failed_graph())) == 0, "turns that failed teach nothing")
    unheard = [_mask_tokens(graph) for graph in graphs]
    promise(len(algorithm.flatten_all(unheard)) == 0, "turns without a trained token teach nothing")
    check_figures(algorithm.remember(graphs))
    return steps


def _mask_tokens(graph: Graph) -> Graph:
    """The graph with every token masked."""

    def silent(node: Node) -> Node:
        return replace(node, probe=replace(node.probe, mask=(False,) * len(node.probe_ids)))

    return graph.map_turns(silent)


def _check_step(algorithm: Algorithm, batch: Any, system: System) -> float:
    loss, metrics = algorithm.step(batch)
    promise(loss.ndim == 0 and bool(torch.isfinite(loss)), f"a loss is a finite scalar, got {loss}")
    for name, value in metrics.items():
        holds = isinstance(value, float) and math.isfinite(value)
        promise(holds, f"a metric is a finite float, got {value!r} for {name}")
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = gradients_of(system)
    promise(
        any(bool(gradient.abs().sum() > 0.0) for gradient in gradients),
        "the gradient reaches the attacker",
    )
    promise(all(bool(g.isfinite().all()) for g in gradients), "the gradient is finite")
    frozen = [p for model in models_of(system)[1:] for p in model.parameters()]
    promise(all(p.grad is None for p in frozen), "target and reference take no gradient")
    system.attacker.model.zero_grad(set_to_none=True)
    return float(loss.detach())
