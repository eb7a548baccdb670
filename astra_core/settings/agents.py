"""Several attackers, called agents: which turns each plays, what they share, how each learns."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from astra_core.errors import ConfigurationError
from astra_core.settings.patterns import check_pattern
from astra_core.settings.sections import Choice, Count, NonNegative, Positive, Section

AgentName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]
"""Names a folder and metrics."""


class Part(Section):
    """Weights of the attacker, or of the algorithm, with their own learning rate or timetable.

    A weight in several parts multiplies their factors and moves only when all of them are active.
    """

    pattern: str = Field(min_length=1, description="Regular expression, searched in weight names.")
    lr_factor: NonNegative = Field(1.0, description="Times training.lr; 0 freezes.")
    active: Literal["always", "never", "periodic"] = "always"
    period: Count = Field(1, description="periodic: training steps of one round.")
    start: int = Field(0, ge=0, description="periodic: first active step of a round.")
    stop: Count = Field(1, description="periodic: the step of a round that ends it.")

    @model_validator(mode="after")
    def _can_be_used(self) -> Self:
        check_pattern("pattern", self.pattern)
        if not self.start < self.stop <= self.period:
            msg = "start < stop <= period must hold"
            raise ValueError(msg)
        return self


class AgentConfiguration(Section):
    """What one of several agents shares with the first, and its instruction."""

    model: Literal["shared", "own"] = Field(
        "shared",
        description="own: a copy of the first agent's untrained weights, which learns by itself.",
    )
    own_weights: str | None = Field(
        None,
        min_length=1,
        description="shared: regular expression, searched in weight names; the agent has those "
        "for itself and shares the others. null shares all.",
    )
    instruction: str | None = Field(
        None, min_length=1, description="The agent reads it before every conversation."
    )

    @model_validator(mode="after")
    def _can_be_used(self) -> Self:
        if self.own_weights is not None and self.model == "own":
            msg = "own_weights must be null when model is 'own', which shares none"
            raise ValueError(msg)
        check_pattern("own_weights", self.own_weights or "")
        return self

    @property
    def shares_all(self) -> bool:
        """True where it has no weights of its own."""
        return self.model == "shared" and self.own_weights is None


class AgentTraining(Section):
    """How one agent learns; null means the same as for all."""

    trainable: bool = Field(
        True, description="false: nothing is learned from its turns, its weights stay."
    )
    lr: Positive | None = Field(None, description="Peak rate of the weights it has alone.")
    schedule: Choice | None = None
    warmup_steps: int | None = Field(None, ge=0)
    parts: dict[str, Part] | None = Field(
        None, description="Rates and timetables of the weights it has alone."
    )

    @model_validator(mode="after")
    def _frozen_sets_nothing(self) -> Self:
        if not self.trainable and self.settings:
            msg = f"{self.settings[0]} must be null when trainable is false"
            raise ValueError(msg)
        return self

    @property
    def settings(self) -> tuple[str, ...]:
        """The names of what it sets for the weights that it has alone."""
        names = ("lr", "schedule", "warmup_steps", "parts")
        return tuple(name for name in names if getattr(self, name) is not None)


def check_roles(roles: Sequence[str], agents: Mapping[str, AgentConfiguration]) -> None:
    """Checks that every agent has a turn and the first one's weights are the attacker's."""
    idle = [name for name in agents if name not in roles]
    if idle:
        msg = f"agents must be named in roles, got '{idle[0]}' besides {list(roles)}"
        raise ValueError(msg)
    if roles and not agents.get(roles[0], AgentConfiguration()).shares_all:
        msg = f"agents.{roles[0]} plays the first turn and must have model 'shared'"
        raise ValueError(msg)


def check_agents(
    roles: Sequence[str],
    agents: Mapping[str, AgentConfiguration],
    training: Mapping[str, AgentTraining],
    *,
    depth: int | None = None,
    plays_roles: bool = True,
    num_processes: int = 1,
) -> None:
    """Checks that these agents can be trained together; loads no weights.

    Raises ConfigurationError if they cannot; the message says what to change.
    """
    for name, own in training.items():
        if name not in roles:
            msg = (
                f"training.agents must name agents of system.roles, got '{name}' besides "
                f"{list(roles)}; add it there or remove it here"
            )
            raise ConfigurationError(msg)
        if own.settings and name != roles[0] and agents.get(name, AgentConfiguration()).shares_all:
            msg = (
                f"training.agents.{name}.{own.settings[0]} must be null for an agent without "
                f"weights of its own, got one; set that of {roles[0]}, or give {name} a model "
                f"'own' or own_weights in system.agents"
            )
            raise ConfigurationError(msg)
    if not roles:
        return
    if all(name in training and not training[name].trainable for name in roles):
        msg = (
            f"training.agents must leave an agent that learns, got {list(roles)} all with "
            "trainable: false; train one"
        )
        raise ConfigurationError(msg)
    _check_surroundings(
        {
            f"rollouts.sampler must play the roles of system.roles {list(roles)}, got one that "
            "does not declare it in `gives`; name another, such as 'tree'": not plays_roles,
            f"machine.num_processes must be 1 for several agents, got {num_processes}; set it "
            "to 1 or leave system.roles empty": num_processes > 1,
            f"system.roles must name at most as many turns as rollouts.sampler.options."
            f"tree_depth, got {len(roles)} for {depth}; raise it or name fewer": (
                depth is not None and len(roles) > depth
            ),
        }
    )


def _check_surroundings(problems: Mapping[str, bool]) -> None:
    for msg, is_there in problems.items():
        if is_there:
            raise ConfigurationError(msg)
