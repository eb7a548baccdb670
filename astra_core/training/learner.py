"""A Learner: an optimiser with its schedule over all trained weights, or over one agent's own.

The first agent that learns moves the weights that agents share.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import Module, Parameter
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from astra_core.agents import Agent
from astra_core.config import AgentConfiguration, AgentTraining, TrainingConfiguration
from astra_core.errors import ConfigurationError
from astra_core.extensions.calls import describe, plugin_call, refuse
from astra_core.models.lora import add_adapters, share_frozen
from astra_core.models.sharing import only_trained, share_weights
from astra_core.registry import build
from astra_core.system import System
from astra_core.training.optimization.optimizers import OptimizerPlugin, SchedulePlugin
from astra_core.training.optimization.parts import (
    found_parts,
    is_active,
    parameter_groups,
    trained_weights,
)


class Learner:
    """Moves weights in groups with one rate and one timetable each.

    Attributes:
        metric: The figure of an evaluation that the schedule follows; None if it follows steps.

    ``name``: the agent's name; empty if there is only one attacker.
    """

    def __init__(
        self,
        name: str,
        config: TrainingConfiguration,
        model: Module,
        *,
        extra: Iterable[Parameter] = (),
        taken: Collection[int] = (),
    ) -> None:
        self.name = name
        self._config = config
        plugin: OptimizerPlugin = build("optimizer", config.optimizer)
        groups = parameter_groups(
            model,
            extra,
            weight_decay=float(getattr(plugin.options, "weight_decay", 0.0)),
            lr=config.lr,
            parts=config.parts,
            taken=taken,
        )
        self._plugin = plugin
        self.optimizer = build_optimizer(plugin, groups, config.lr)
        self._mover: SchedulePlugin = build("schedule", config.schedule)
        self.schedule = build_schedule(self._mover, config, self.optimizer)
        self.schedule_name = config.schedule.name
        self.metric = followed_figure(self._mover)
        self._active_groups: list[dict[str, Any]] = list(self.optimizer.param_groups)
        self._own_rates = self._rates()
        self._has_moved = False

    @property
    def lr(self) -> float:
        """The learning rate of the first group."""
        return float(self.optimizer.param_groups[0]["lr"])

    def active(self) -> list[Parameter]:
        """The weights that the present training step moves."""
        return [p for group in self._active_groups for p in group["params"]]

    def clear_inactive(self, training_step: int) -> None:
        """Drops the gradients of frozen weights, so that none remain when they become active."""
        parts = self._config.parts
        self._active_groups = []
        for group in self.optimizer.param_groups:
            if all(is_active(parts[key], training_step) for key in group["parts"]):
                self._active_groups.append(group)
                continue
            for parameter in group["params"]:
                parameter.grad = None

    def step(self) -> None:
        """Moves the weights by their gradients."""
        with plugin_call("optimizer", self._plugin, "step"):
            self.optimizer.step()

    def move_schedule(self) -> None:
        """Sets the rate of the next training step."""
        before = self._rates()
        with plugin_call("schedule", self.schedule_name, "step"):
            self._mover.move(self.schedule)
        self._own_rates = self._rates()
        self._has_moved |= before != self._own_rates

    def require_no_schedule(self) -> None:
        """Checks that the schedule has left the rates alone, since another schedule moves them."""
        if self._has_moved:
            msg = (
                f"the learning rate must have one schedule, got training.schedule "
                f"'{self.schedule_name}' with warmup_steps {self._config.warmup_steps} beside one "
                "of the loop's own; leave one out"
            )
            raise ConfigurationError(msg)

    @property
    def is_as_scheduled(self) -> bool:
        """Whether the rates are those of the schedule; False once something else has set them."""
        if self.metric is not None:
            return True
        return self._rates() in (self._own_rates, list(self.schedule.get_last_lr()))

    def _rates(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def follow(self, figures: Mapping[str, float]) -> None:
        """Gives a schedule the figure of an evaluation that it follows."""
        if self.metric is None:
            return
        if self.metric not in figures:
            msg = (
                f"training.schedule must follow a figure of the evaluation, got '{self.metric}'; "
                f"there are {sorted(figures)}"
            )
            raise ConfigurationError(msg)
        with plugin_call("schedule", self.schedule_name, "step"):
            self._mover.move(self.schedule, figures)


def learners_of(
    config: TrainingConfiguration,
    attacker: Module,
    extra: Mapping[str, Sequence[Parameter]],
    *,
    agents: Sequence[Agent] = (),
) -> tuple[Learner, ...]:
    """One Learner for one attacker, or one for each agent that learns with its own weights.

    ``extra``: the weights of each agent's algorithm, such as its critic; those of one attacker's
    are under an empty name.

    Raises ConfigurationError if a setting is for an agent without its own weights.
    """
    if not agents:
        return (Learner("", config, attacker, extra=extra.get("", ())),)
    learners, taken = [], set[int]()
    for agent in agents:
        own = config.agents.get(agent.name, AgentTraining())
        weights = trained_weights(agent.model.model, ()).values()
        new = {id(weight) for weight in weights} - taken
        critic = extra.get(agent.name, ())
        if own.trainable and (new or critic):
            settings = _config_of(config, own)
            if not new:  # the other parts are of a model that an earlier agent moves
                parts = found_parts(settings.parts, trained_weights(Module(), critic))
                settings = settings.model_copy(update={"parts": parts})
            model = agent.model.model
            learners.append(Learner(agent.name, settings, model, extra=critic, taken=taken))
            taken |= new
        elif own.settings:
            msg = (
                f"training.agents.{agent.name}.{own.settings[0]} must be null for an agent without "
                "trained weights of its own, got one; set that of an earlier one in system.roles"
            )
            raise ConfigurationError(msg)
    return tuple(learners)


def make_trainable(system: System, config: TrainingConfiguration, *, seed: int) -> None:
    """Adds adapters, shares weights between agents and freezes those that no learning agent has."""
    models = {agent.name: agent.model.model for agent in system.agents}
    separate = {id(model): model for model in (system.attacker.model, *models.values())}
    if config.lora is not None:
        for model in separate.values():
            add_adapters(model, config.lora, seed=seed)
        if config.sharding == "none":
            for agent in system.agents or (system.player(0),):
                share_frozen(agent.model.model, agent.reference.model)
    for agent in system.agents:
        pattern = system.config.agents.get(agent.name, AgentConfiguration()).own_weights
        if pattern is not None:
            where = f"system.agents.{agent.name}.own_weights"
            share_weights(agent.model.model, system.attacker.model, own=pattern, where=where)
    if models:
        only_trained(models, trained_agents(config, system.agents))


def trained_agents(config: TrainingConfiguration, agents: Iterable[Agent]) -> set[str]:
    """The names of the agents that learn."""
    every = {agent.name: config.agents.get(agent.name, AgentTraining()) for agent in agents}
    return {name for name, own in every.items() if own.trainable}


def configs_of(config: TrainingConfiguration) -> list[TrainingConfiguration]:
    """The configuration, and that of each agent with settings of its own."""
    return [config, *(_config_of(config, own) for own in config.agents.values() if own.settings)]


def _config_of(config: TrainingConfiguration, own: AgentTraining) -> TrainingConfiguration:
    """The configuration with what an agent sets for itself."""
    return config.model_copy(update={name: getattr(own, name) for name in own.settings})


def build_optimizer(
    plugin: OptimizerPlugin, groups: Sequence[dict[str, Any]], lr: float
) -> Optimizer:
    """The optimiser that the plug-in builds over the groups."""
    with plugin_call("optimizer", plugin, "optimizer"):
        found = plugin.optimizer(groups, lr)
    if not isinstance(found, Optimizer):
        refuse("optimizer", plugin, "a torch optimiser", got=describe(found))
    return found


def followed_figure(plugin: SchedulePlugin) -> str | None:
    """The figure of an evaluation that a schedule follows; None for one of the step alone."""
    with plugin_call("schedule", plugin, "metric"):
        metric: Any = plugin.metric
    if not (metric is None or isinstance(metric, str)):
        refuse("schedule", plugin, "the name of a figure as metric, or None", got=describe(metric))
    return metric


def build_schedule(
    plugin: SchedulePlugin, config: TrainingConfiguration, optimizer: Optimizer
) -> LRScheduler:
    """The schedule that the plug-in builds over the optimiser."""
    steps = {"warmup_steps": config.warmup_steps, "training_steps": config.training_steps}
    with plugin_call("schedule", plugin, "schedule"):
        found = plugin.schedule(optimizer, **steps)
    # Without a metric it would be advanced without a figure, which this schedule requires.
    needs_figure = isinstance(found, ReduceLROnPlateau) and followed_figure(plugin) is None
    if not isinstance(found, LRScheduler) or needs_figure:
        rule = "a torch schedule of the step alone, or name its metric"
        refuse("schedule", plugin, rule, got=describe(found))
    if found.optimizer is not optimizer:
        refuse("schedule", plugin, "a schedule of the run's optimiser", got="one of another")
    return found


def has_same_rates(config: TrainingConfiguration, *, training_steps: int, num_done: int) -> bool:
    """Whether a run of another length would have moved the weights as this one did.

    A schedule such as cosine looks ahead at the last step, so a longer run has other rates from
    the first step on. One that follows an evaluation may have used the shorter run's last one,
    which a longer run does not make.

    ``num_done``: training steps that are done; the rate of the next one counts too.

    Raises PluginError if the schedule is a plug-in that failed.
    """
    if config.training_steps == training_steps:
        return True
    other = config.model_copy(update={"training_steps": training_steps})
    pairs = zip(configs_of(config), configs_of(other), strict=True)
    return all(_has_same_rates(own, their, num_done) for own, their in pairs)


def _has_same_rates(
    config: TrainingConfiguration, other: TrainingConfiguration, num_done: int
) -> bool:
    plugin: SchedulePlugin = build("schedule", config.schedule)
    if followed_figure(plugin) is not None:
        return False
    return _rates(plugin, config, num_done) == _rates(plugin, other, num_done)


def _rates(plugin: SchedulePlugin, config: TrainingConfiguration, num_done: int) -> list[float]:
    """The learning rate of each training step that is done, and of the next."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=config.lr)
    schedule = build_schedule(plugin, config, optimizer)
    rates = [float(optimizer.param_groups[0]["lr"])]
    for _ in range(num_done):
        optimizer.step()
        schedule.step()
        rates.append(float(optimizer.param_groups[0]["lr"]))
    return rates
