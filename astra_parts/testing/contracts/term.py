"""The contract of a term of the reward ``terms``."""

import math
from collections.abc import Sequence, Set as AbstractSet
from typing import Any

from astra_core.reward import ALL_SIGNALS
from astra_parts.rewards.term import Term, Turn, turns_of
from astra_parts.testing.contracts.common import (
    SEED,
    built,
    failed_graph,
    goal_prompts,
    promise,
    sampled_graphs,
    with_goals,
)
from astra_parts.testing.tiny import tiny_system


def check_term(plugin: str | type[Term], **options: Any) -> None:
    """Raises AssertionError unless a term may be named in the options of the reward ``terms``.

    - Its options refuse unknown keys, it is built as ``Class(options)`` and then prepared.
    - It needs only known signals.
    - ``values`` gives one finite number per turn, also of no turns, and remembers nothing.
    - A novelty is in [0, 1].
    - ``load_state`` of ``state`` carries the memory into another process.
    """
    system = tiny_system(SEED)
    term, resumed = (_prepared(plugin, options, system) for _ in range(2))
    needs = term.needs_with(term.options)
    promise(isinstance(needs, AbstractSet) and needs <= ALL_SIGNALS, f"needs are signals: {needs}")
    turns = turns_of([*with_goals(sampled_graphs()), failed_graph()])
    first = _values(term, turns)
    promise(_values(term, []) == [], "no turns have no values")
    promise(_values(term, turns) == first, "values remembers nothing")
    term.remember(turns)
    later = _values(term, turns)
    resumed.load_state({name: value.clone() for name, value in term.state().items()})
    promise(_values(resumed, turns) == later, "state() holds all of the memory")


def _prepared(plugin: str | type[Term], options: dict[str, Any], system: Any) -> Term:
    term: Term = built("term", plugin, options)
    term.prepare(system, goal_prompts())
    return term


def _values(term: Term, turns: Sequence[Turn]) -> list[float]:
    values = term.values(turns)
    promise(len(values) == len(turns), "one value comes back per turn")
    for value in values:
        promise(math.isfinite(value), f"a value is finite, got {value}")
        is_share = not term.is_novelty or 0.0 <= value <= 1.0
        promise(is_share, f"a novelty is in [0, 1], got {value}")
    return list(values)
