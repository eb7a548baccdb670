"""Several agents learn in one loop: each step belongs to the agent that played its turn.

Every agent has its own algorithm, which sees whole trees: later turns count for earlier ones,
also those of other agents. The tokens of others' turns are masked, so it learns only from its own.
The loss of a window is the sum over the steps of all agents divided by their weight, as for one.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import Parameter

from astra_core.algorithm import (
    Algorithm,
    Batch,
    collate_steps,
    flatten_experience,
    loss_of,
    off_policy,
    own_weights,
    restore,
    tensors_by_name,
)
from astra_core.config import Section, TrainingConfiguration
from astra_core.errors import ConfigurationError
from astra_core.extensions.calls import plugin_call, plugin_figures
from astra_core.registry import build
from astra_core.rollout import Graph, Node
from astra_core.sampler import Sampler
from astra_core.settings.agents import check_agents
from astra_core.system import System
from astra_core.training.distribution.distributed import World
from astra_core.training.learner import trained_agents

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AgentStep:
    """A step of one agent's algorithm.

    ``node``: the turn that the step is about, if it names one.
    """

    agent: str
    step: Any
    node: Any


@dataclass(frozen=True, slots=True)
class AgentsBatch:
    """One batch for each agent that has steps among those collated."""

    parts: Mapping[str, Batch]
    weight: float
    num_tokens: int


class AgentsAlgorithm(Algorithm):
    """The configured algorithm once for each agent that learns.

    ``training``: names the algorithm, and the agents that do not learn.
    """

    def __init__(
        self, options: Section, *, system: System, training: TrainingConfiguration
    ) -> None:
        super().__init__(options, system=system)
        learning = trained_agents(training, system.agents)
        self._own: dict[str, Algorithm] = {
            agent.name: build("algorithm", training.algorithm, system=system.seen_by(agent))
            for agent in system.agents
            if agent.name in learning
        }
        self.weighs_probes = all(own.weighs_probes for own in self._own.values())

    def own_weights(self) -> dict[str, tuple[Parameter, ...]]:
        """The weights of each agent's own algorithm, such as its critic."""
        return {name: own_weights(algorithm) for name, algorithm in self._own.items()}

    def parameters(self) -> Sequence[Parameter]:
        """Those of all agents."""
        return [weight for own in self.own_weights().values() for weight in own]

    def flatten(self, graph: Graph) -> Sequence[AgentStep]:
        """The steps of every agent in one graph."""
        return self.flatten_all([graph])

    def flatten_all(self, graphs: Sequence[Graph]) -> list[AgentStep]:
        """The steps of every agent, agent by agent."""
        steps = []
        for name, algorithm in self._own.items():
            seen, origin = self._view_of(name, graphs)
            for step in flatten_experience(algorithm, seen):
                turn = getattr(step, "node", step)
                node = origin.get(id(turn))
                if node is None or self._plays(name, node):
                    steps.append(AgentStep(name, step, turn if node is None else node))
        return steps

    def remember(self, graphs: Sequence[Graph]) -> Mapping[str, float]:
        """The figures of each agent's algorithm on its own turns, after it has remembered them."""
        figures = {}
        for name, algorithm in self._own.items():
            seen, _ = self._view_of(name, graphs)
            for key, value in plugin_figures("algorithm", algorithm, seen).items():
                figures[f"{name}/{key}"] = value
        return figures

    def collate(self, steps: Sequence[AgentStep]) -> AgentsBatch:
        """One batch for each agent. Raises ConfigurationError if a step belongs to no agent."""
        strangers = [step for step in steps if not isinstance(step, AgentStep)]
        if strangers:
            msg = (
                "steps of several agents must be those that flatten gives, got a "
                f"{type(strangers[0]).__name__}; leave system.roles empty for this trainer"
            )
            raise ConfigurationError(msg)
        parts = {}
        for name, algorithm in self._own.items():
            own = [step.step for step in steps if step.agent == name]
            if own:
                parts[name] = collate_steps(algorithm, own)
        batches = parts.values()
        weight = sum(batch.weight for batch in batches)
        return AgentsBatch(parts, weight, sum(batch.num_tokens for batch in batches))

    def step(self, batch: AgentsBatch) -> tuple[Float[Tensor, ""], Mapping[str, float]]:
        """The agents' losses, summed; figures of each count by its share until ``own_means``."""
        losses, figures = [], dict[str, float]()
        for name, own in batch.parts.items():
            loss, logs = loss_of(self._own[name], own)
            losses.append(loss)
            total = batch.weight or 1.0
            share = own.weight / total
            figures |= {f"{name}/{key}": value * share for key, value in logs.items()}
            figures |= {f"{name}/loss": float(loss.detach()) / total, f"{name}/share": share}
            for key, value in logs.items():
                figures[key] = figures.get(key, 0.0) + value * share
        return torch.stack(losses).sum(), figures

    def state(self) -> Mapping[str, Tensor]:
        """The state of every agent's algorithm."""
        return {
            f"{name}/{key}": value
            for name, algorithm in self._own.items()
            for key, value in tensors_by_name("algorithm", algorithm).items()
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores it."""
        for name, algorithm in self._own.items():
            start = f"{name}/"
            own = {key.removeprefix(start): x for key, x in state.items() if key.startswith(start)}
            restore("algorithm", algorithm, own)

    def _plays(self, name: str, node: Node) -> bool:
        return self.system.player(len(node.path) - 1).name == name

    def _view_of(self, name: str, graphs: Sequence[Graph]) -> tuple[list[Graph], dict[int, Node]]:
        """The graphs with others' turns masked, and the original of each copied turn."""
        seen = [mask_others(graph, lambda node: self._plays(name, node)) for graph in graphs]
        copies, originals = (
            [node for own in every for node in own.nodes()] for every in (seen, graphs)
        )
        return seen, dict(zip(map(id, copies), originals, strict=True))


def mask_others(graph: Graph, is_own: Callable[[Node], bool]) -> Graph:
    """The graph with no trained token in other agents' turns."""

    def mask_turn(node: Node) -> Node:
        if is_own(node):
            return node
        return replace(node, probe=replace(node.probe, mask=(False,) * len(node.probe.mask)))

    return graph.map_turns(mask_turn)


def own_means(figures: Mapping[str, float], agents: Sequence[str]) -> dict[str, float]:
    """Figures of a window in which those of an agent are means over its own steps."""
    found = dict(figures)
    for agent in agents:
        share = figures.get(f"{agent}/share", 0.0)
        for name, value in figures.items():
            if share and name.startswith(f"{agent}/") and name != f"{agent}/share":
                found[name] = value / share
    return found


def build_algorithm(training: TrainingConfiguration, system: System) -> Algorithm:
    """The configured algorithm, for one attacker or for several agents."""
    if system.agents:
        return AgentsAlgorithm(Section(), system=system, training=training)
    built: Algorithm = build("algorithm", training.algorithm, system=system)
    return built


def check_team(
    config: TrainingConfiguration, sampler: Sampler, algorithm: Algorithm, *, world: World
) -> None:
    """Raises unless the algorithm can train the agents; warns of samples that are off-policy.

    Raises ConfigurationError if they cannot; see ``check_agents`` and ``Algorithm.check_needs``.
    """
    system = sampler.system.config
    check_agents(
        system.roles,
        system.agents,
        config.agents,
        depth=getattr(sampler.options, "tree_depth", None),
        plays_roles="roles" in sampler.gives,
        num_processes=world.size,
    )
    if bool(sampler.system.agents) != isinstance(algorithm, AgentsAlgorithm):
        msg = (
            "the algorithm of several agents must be one for each, got "
            f"{type(algorithm).__name__}; get it from Trainer.algorithm_for(config, system)"
        )
        raise ConfigurationError(msg)
    if not isinstance(algorithm, AgentsAlgorithm) and hasattr(algorithm, "options"):
        _check_needs(sampler, algorithm)
    line = off_policy(getattr(algorithm, "options", Section()), system.probe)
    if line and world.is_first:
        _LOG.warning(line)


def _check_needs(sampler: Sampler, algorithm: Algorithm) -> None:
    """Checks that the sampler gives what the algorithm needs, however the two were built."""
    given: set[Any] = {*sampler.gives, "value_head"}
    if sampler.system.shares_tokenizer:
        given.add("shared_tokenizer")
    if sampler.runs_per_prompt > 1:
        given.add("runs")
    algorithm.check_needs(algorithm.options, sampler.options, gives=given)
    with plugin_call("sampler", sampler, "has_siblings"):
        has_siblings = bool(sampler.has_siblings)
    if not has_siblings:
        algorithm.check_needs(algorithm.options, sampler.options, gives=given - {"siblings"})
