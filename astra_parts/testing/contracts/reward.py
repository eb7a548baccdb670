"""The contract of a reward."""

import math
from collections.abc import Iterable, Sequence, Set as AbstractSet
from dataclasses import replace
from typing import Any

from astra_core.reward import ALL_SIGNALS, Reward
from astra_core.rollout import Graph, Node
from astra_parts.rewards.term import Term, Turn, turns_of
from astra_parts.testing.contracts.common import (
    SEED,
    build_plugin,
    check_figures,
    goal_graphs,
    goal_prompts,
    promise,
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
    reward: Reward = _prepare("reward", plugin, options, system=system)
    graphs = goal_graphs()
    rewarded = reward.assign(graphs)
    promise(len(rewarded) == len(graphs), "one graph comes back per graph")
    for graph, given in zip(graphs, rewarded, strict=True):
        promise(
            _text_without_rewards(graph) == _text_without_rewards(given),
            "only reward and novelty change",
        )
        for node in given.nodes():
            promise(math.isfinite(node.reward), f"a reward is finite, got {node.reward}")
            promise(not node.has_failed or node.reward == 0.0, "a failed turn keeps reward 0")
    promise(_texts(reward.assign(graphs)) == _texts(rewarded), "assign remembers nothing")
    check_figures(reward.remember(rewarded))
    later = reward.assign(graphs)
    resumed: Reward = _prepare("reward", plugin, options, system=system)
    resumed.load_state({name: value.clone() for name, value in reward.state().items()})
    promise(_texts(resumed.assign(graphs)) == _texts(later), "state() holds all of the memory")


def _text_without_rewards(graph: Graph) -> str:
    def plain(node: Node) -> Node:
        return replace(node, probe=replace(node.probe, novelty=0.0), reward=0.0)

    # Compared as text, because NaN, the score of a turn that failed, does not equal itself.
    return repr(graph.map_turns(plain))


def _texts(graphs: Iterable[Graph]) -> list[str]:
    return [repr(graph) for graph in graphs]


def check_term(plugin: str | type[Term], **options: Any) -> None:
    """Raises AssertionError unless a term may be named in the options of the reward ``terms``.

    - Its options refuse unknown keys, it is built as ``Class(options)`` and then prepared.
    - It needs only known signals.
    - ``values`` gives one finite number per turn, also of no turns, and remembers nothing.
    - A novelty is in [0, 1].
    - ``load_state`` of ``state`` carries the memory into another process.
    """
    system = tiny_system(SEED)
    made: list[Term] = [_prepare("term", plugin, options, system=system) for _ in range(2)]
    term, resumed = made
    needs = term.needs_with(term.options)
    promise(isinstance(needs, AbstractSet) and needs <= ALL_SIGNALS, f"needs are signals: {needs}")
    turns = turns_of(goal_graphs())
    first = _values(term, turns)
    promise(_values(term, []) == [], "no turns have no values")
    promise(_values(term, turns) == first, "values remembers nothing")
    term.remember(turns)
    later = _values(term, turns)
    resumed.load_state({name: value.clone() for name, value in term.state().items()})
    promise(_values(resumed, turns) == later, "state() holds all of the memory")


def _prepare(kind: str, plugin: str | type[Any], options: dict[str, Any], *, system: Any) -> Any:
    made = build_plugin(kind, plugin, options)
    made.prepare(system, goal_prompts())
    return made


def _values(term: Term, turns: Sequence[Turn]) -> list[float]:
    values = term.values(turns)
    promise(len(values) == len(turns), "one value comes back per turn")
    for value in values:
        promise(math.isfinite(value), f"a value is finite, got {value}")
        is_share = not term.is_novelty or 0.0 <= value <= 1.0
        promise(is_share, f"a novelty is in [0, 1], got {value}")
    return list(values)
