"""A trainer in which one agent leads: its followers are updated first, and it may foresee them."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from pydantic import Field

from astra_core.algorithm import Algorithm, Batch
from astra_core.config import Count, Positive, Section, SystemConfiguration, TrainingConfiguration
from astra_core.errors import ConfigurationError
from astra_core.sampler import Sampler
from astra_core.settings.agents import AgentConfiguration, AgentName, AgentTraining
from astra_core.training.harness import Experience
from astra_core.training.team import AgentsBatch
from astra_core.training.trainer import Trainer
from astra_parts.agents.path_losses import path_losses
from astra_parts.algorithms.functional.lookahead import lookahead_gradient

_HERE = "training.trainer 'leader_follower'"
_CLIP = 0.2  # PPO's, here of the ratio of a whole conversation


class LeaderFollower(Trainer):
    """Updates followers some times for each update of their leader, on the same windows.

    With ``lookahead`` the leader's gradient goes through the step by which its followers would
    answer it, so it learns what they are led to: Stackelberg's leader with one unrolled step.
    """

    class Options(Section):
        """Who leads, and how far it sees."""

        leader: AgentName | None = Field(None, description="null: the first agent that learns.")
        follower_updates: Count = Field(
            1, description="Updates of the followers for each of the leader's."
        )
        lookahead: Positive | None = Field(
            None, description="Size of the followers' step that the leader foresees; null: none."
        )

    options: Options

    @classmethod
    def check_system(
        cls, options: Section, system: SystemConfiguration, training: TrainingConfiguration
    ) -> None:
        """Raises ConfigurationError unless a leader and its followers learn, each by itself."""
        _learning(options, system, training)

    def __init__(
        self, config: TrainingConfiguration, sampler: Sampler, algorithm: Algorithm, **parts: Any
    ) -> None:
        super().__init__(config, sampler, algorithm, **parts)
        system = self.sampler.system
        self._leader, self._followers = _learning(self.options, system.config, config)
        lone = [own.name for own in system.agents if own.model.plan.reading == "lone"]
        if self.options.lookahead is not None and lone:
            msg = (
                f"{_HERE} options.lookahead must be null where a model reads rows one by one, got "
                f"that of '{lone[0]}'; leave it out, or take a model with attention alone"
            )
            raise ConfigurationError(msg)

    def windows(self, experience: Experience) -> Iterator[list[Batch]]:
        """Each window for the followers, as often as asked for, then for the leader."""
        if self.options.lookahead is not None:
            self.updates.shape = partial(self._look_ahead, experience)
        turns = [self._followers] * self.options.follower_updates + [(self._leader,)]
        for window in super().windows(experience):
            for names in turns:
                own = [part for batch in window if (part := _of(batch, names)).parts]
                if own:
                    yield [*own]

    def _look_ahead(self, experience: Experience, window: Sequence[Batch]) -> None:
        """Adds to the leader's gradients what foreseeing its followers changes of them."""
        if {name for batch in window for name in _of(batch).parts} != {self._leader}:
            return
        system, step = self.sampler.system, self.options.lookahead or 0.0
        learning = (self._leader, *self._followers)
        losses = path_losses(experience.graphs, system, learning, clip=_CLIP)
        weights = {
            agent.name: {
                key: weight
                for key, weight in agent.model.model.named_parameters()
                if weight.requires_grad
            }
            for agent in system.agents
            if agent.name in learning
        }
        if not losses[self._leader]:
            return
        ahead, alone = (
            lookahead_gradient(own, weights, leader=self._leader, lr=step)
            for own in (losses, {self._leader: losses[self._leader]})
        )
        with torch.no_grad():
            for key, weight in weights[self._leader].items():
                if weight.grad is not None:
                    weight.grad += ahead[key] - alone[key]


def _of(batch: Any, names: Sequence[str] | None = None) -> AgentsBatch:
    """The part of a batch of several agents that belongs to some of them; by default all."""
    parts = {name: own for name, own in batch.parts.items() if names is None or name in names}
    weight = sum(own.weight for own in parts.values())
    return AgentsBatch(parts, weight, sum(own.num_tokens for own in parts.values()))


def _learning(
    options: Any, system: SystemConfiguration, training: TrainingConfiguration
) -> tuple[str, tuple[str, ...]]:
    """The leader and its followers.

    Raises ConfigurationError unless they learn, each with weights of its own.
    """
    found = [
        name
        for name in dict.fromkeys(system.roles)
        if training.agents.get(name, AgentTraining()).trainable
    ]
    if len(found) < 2:
        msg = (
            f"{_HERE} must have two agents that learn, got {found}; name them in system.roles, or "
            "set training.trainer to trainer"
        )
        raise ConfigurationError(msg)
    leader = options.leader or found[0]
    if leader not in found:
        msg = (
            f"{_HERE} options.leader must be one of the agents that learn {found}, got '{leader}'; "
            "correct it or leave it out"
        )
        raise ConfigurationError(msg)
    shared = [
        name
        for name in found
        if name != system.roles[0] and system.agents.get(name, AgentConfiguration()).model != "own"
    ]
    if shared:
        msg = (
            f"{_HERE} must have agents with weights of their own, got '{shared[0]}' that shares; "
            f"set system.agents.{shared[0]}.model to own"
        )
        raise ConfigurationError(msg)
    parts = training.parts or any(own.parts for own in training.agents.values())
    ignored = {
        "training.staleness.correction": training.staleness.correction != "none",
        "training.parts, or those of an agent": bool(parts),
    }
    for name, is_set in ignored.items():
        if options.lookahead is not None and is_set:
            msg = (
                f"{_HERE} options.lookahead must be null beside {name}, which the step that is "
                "foreseen does not heed; leave one out"
            )
            raise ConfigurationError(msg)
    return leader, tuple(name for name in found if name != leader)
