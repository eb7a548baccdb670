"""The contract of a reward."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from astra_core.reward import Reward
from astra_core.rollout import Graph, Node
from astra_parts.testing.contracts.common import (
    SEED,
    built,
    check_figures,
    failed_graph,
    goal_prompts,
    promise,
    sampled_graphs,
    with_goals,
)
from astra_parts.testing.tiny import tiny_system


def check_reward(plugin: str | type[Reward], **options: Any) -> None:
    """Raises AssertionError unless a reward may be named under ``reward``.

    - Its options refuse unknown keys, and it is built as ``Class(options)``; then ``prepare``
      shows it the system and the prompts.
    - ``assign`` gives every turn a finite reward, 0 to one that failed, and changes no attribute
      except ``reward`` and ``novelty``; graphs stay in order.
    - ``assign`` remembers nothing: a second call gives the same.
    - ``load_state`` of ``state`` carries the memory into another process; figures of ``remember``
      are finite.
    """
    system = tiny_system(SEED)
    reward: Reward = built("reward", plugin, options)
    reward.prepare(system, goal_prompts())
    graphs = [*with_goals(sampled_graphs()), failed_graph()]
    rewarded = reward.assign(graphs)
    promise(len(rewarded) == len(graphs), "one graph comes back per graph")
    for graph, given in zip(graphs, rewarded, strict=True):
        promise(_unrewarded(graph) == _unrewarded(given), "only reward and novelty change")
        for node in given.nodes():
            promise(math.isfinite(node.reward), f"a reward is finite, got {node.reward}")
            promise(not node.has_failed or node.reward == 0.0, "a failed turn keeps reward 0")
    promise(_texts(reward.assign(graphs)) == _texts(rewarded), "assign remembers nothing")
    check_figures(reward.remember(rewarded))
    later = reward.assign(graphs)
    resumed: Reward = built("reward", plugin, options)
    resumed.prepare(system, goal_prompts())
    resumed.load_state({name: value.clone() for name, value in reward.state().items()})
    promise(_texts(resumed.assign(graphs)) == _texts(later), "state() holds all of the memory")


def _unrewarded(graph: Graph) -> str:
    def plain(node: Node) -> Node:
        probe = replace(node.probe, novelty=0.0)
        return replace(node, probe=probe, reward=0.0, children=tuple(map(plain, node.children)))

    # Compared as text, because NaN, the score of a turn that failed, does not equal itself.
    return repr(replace(graph, children=tuple(map(plain, graph.children))))


def _texts(graphs: Iterable[Graph]) -> list[str]:
    return [repr(graph) for graph in graphs]
