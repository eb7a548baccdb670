"""A reward turns a turn into the number that an algorithm maximises."""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from dataclasses import replace
from typing import Any, ClassVar, Literal

from torch import Tensor

from astra_core.config import Section
from astra_core.errors import ConfigurationError
from astra_core.extensions.calls import describe, is_number, plugin_call, refuse
from astra_core.extensions.plugin_class import Plugin
from astra_core.rollout import Graph, Node, Prompt
from astra_core.system import System

Signal = Literal["target_logprobs", "reference", "goal"]
"""``target_logprobs``: of the probe, from the target. ``reference``: the same from the reference.
``goal``: a column of the prompts."""

ALL_SIGNALS: frozenset[Signal] = frozenset({"target_logprobs", "reference", "goal"})

# For each signal the message if it is missing.
_LACKING: dict[Signal, str] = {
    "target_logprobs": "reward '{name}' must have a target that gives log-probabilities of a "
    "probe, got one that gives none, as all under system.spelling; set the weight of its "
    "likelihood to 0 (nll_weight), or measure it under the reference (reward terms, likelihood: "
    "{{under: reference}})",
    "reference": "reward '{name}' must have reference log-probabilities, got a sampler that gives "
    "none; name another rollouts.sampler, such as 'tree', or leave the terms out that ask for them",
    "goal": "reward '{name}' must have prompts with a goal, got none; name the column in "
    "prompts.goal_column, or leave the terms out that ask for it",
}


class RewardPlugin(Plugin):
    """What a reward and a term of one have in common; either may have a memory."""

    needs: ClassVar[frozenset[Signal]] = frozenset()
    """Signals that it cannot do without, under any options; see ``needs_with``."""

    @classmethod
    def needs_with(cls, options: Section) -> frozenset[Signal]:
        """What it needs under these options; overridden where they decide."""
        del options
        return cls.needs

    def prepare(self, system: System, prompts: Sequence[Prompt]) -> None:  # optional
        """Takes the System and the prompts; every sampler calls it when it is built.

        An evaluation prepares its own copy, with the prompts of the evaluation.
        """

    def state(self) -> Mapping[str, Tensor]:
        """What ``remember`` has built, for a checkpoint."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:  # none by default
        """Restores what ``state`` returned."""


class Reward(RewardPlugin):
    """Score minus penalties."""

    @abstractmethod
    def assign(self, graphs: Sequence[Graph]) -> list[Graph]:
        """The graphs with every node's reward filled in; does not change the memory."""

    def remember(self, graphs: Sequence[Graph]) -> Mapping[str, float] | None:
        """Updates the memory after an experience was rewarded; returns figures for the log.

        A figure ``part`` is logged as ``reward/part``. Most rewards have no memory.
        """
        del graphs
        return {}


def check_signals(
    name: str, reward: type[Reward], options: Section, *, gives: AbstractSet[Signal]
) -> None:
    """Raises ConfigurationError unless a reward of these options gets what it needs."""
    with plugin_call("reward", reward, "needs_with"):
        needs = frozenset(reward.needs_with(options))
    for signal in sorted(needs - gives):
        raise ConfigurationError(_LACKING[signal].format(name=name))


def mean_parts(
    graphs: Sequence[Graph], parts: Callable[[Node], Mapping[str, float]]
) -> dict[str, float]:
    """The mean of each part of a reward over the turns that were judged; none without a turn."""
    found = [parts(node) for graph in graphs for node in graph.nodes() if node.is_judged]
    names = found[0] if found else {}
    return {name: sum(each[name] for each in found) / len(found) for name in names}


def reward_graphs(reward: Reward, graphs: Sequence[Graph]) -> list[Graph]:
    """The graphs after the reward's ``assign``, with a finite number for every turn.

    An unjudged turn gets 0, whatever the reward makes of its NaN, and ``is_judged`` excludes it
    from learning.

    Raises PluginError if it failed, or gave something else.
    """
    with plugin_call("reward", reward, "assign"):
        given = reward.assign(graphs)
    require_graphs("reward", reward, given, count=len(graphs))
    given = list(map(_unjudged_at_zero, given))
    for node in (node for graph in given for node in graph.nodes()):
        if not (is_number(node.reward) and math.isfinite(node.reward)):
            refuse("reward", reward, "every turn a finite number", got=describe(node.reward))
    return given


def _unjudged_at_zero(graph: Graph) -> Graph:
    if not any(node.is_unjudged for node in graph.nodes()):
        return graph
    return graph.map_turns(lambda node: replace(node, reward=0.0) if node.is_unjudged else node)


def require_graphs(kind: str, plugin: Any, given: Any, *, count: int) -> None:
    """Raises PluginError unless a plug-in gave the right number of graphs."""
    is_list = isinstance(given, Sequence) and all(isinstance(graph, Graph) for graph in given)
    if not is_list or len(given) != count:
        got = f"{len(given)} for {count} prompts" if is_list else describe(given)
        refuse(kind, plugin, "one graph per prompt, in order", got=got)
