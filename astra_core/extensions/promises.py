"""Checks of what a plug-in returned, before it is used; an error is one line with its name.

An invalid number would otherwise cause an error far away, or silently corrupt the weights. Each
kind's base class documents its contract, and ``astra_core.testing`` checks it in full. An error
shows a wrong value's type or number, never its text: it may quote a reply.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from astra_core.algorithm import Algorithm, Batch
from astra_core.config import TrainingConfiguration
from astra_core.errors import ConfigurationError
from astra_core.evaluator import Evaluator
from astra_core.extensions.calls import (
    is_built_in,
    is_number,
    path_of,
    plugin_call,
    refuse,
    spelled,
)
from astra_core.rollout import Graph
from astra_core.training.optimization.optimizers import OptimizerPlugin, SchedulePlugin
from astra_core.training.progress import StepReport


class Examiner(Protocol):
    """The part of a trainer that evaluation uses."""

    config: TrainingConfiguration
    evaluator: Evaluator | None

    def examine(self, evaluator: Evaluator) -> dict[str, float]:
        """The figures of the present attacker."""
        ...


class Stepper(Protocol):
    """The part of a trainer that yields reports."""

    def steps(self) -> Iterator[StepReport]:
        """One report per update."""
        ...


def flattened(algorithm: Algorithm, graphs: Sequence[Graph]) -> tuple[Any, ...]:
    """The steps that the algorithm makes of an experience.

    Raises:
        PluginError: It failed, or gave no list.
    """
    with plugin_call("algorithm", algorithm, "flatten"):
        steps: Any = algorithm.flatten_all(graphs)
    if not isinstance(steps, Sequence) or isinstance(steps, str):
        refuse("algorithm", algorithm, "a list of steps from flatten", got=spelled(steps))
    return tuple(steps)


def noted(kind: str, plugin: Any, graphs: Sequence[Graph]) -> dict[str, float]:
    """The figures of a reward, a sampler or an algorithm on an experience that it has noted.

    Raises:
        PluginError: It failed, or gave something else; only an algorithm owes figures.
    """
    with plugin_call(kind, plugin, "remember"):
        figures = plugin.remember(graphs)
    if figures is None and kind != "algorithm":
        return {}
    return figures_of(kind, plugin, figures, action="remember")


def figures_of(kind: str, plugin: Any, given: Any, *, action: str) -> dict[str, float]:
    """Figures by name, as plain numbers; one need not be finite.

    Raises:
        PluginError: They are something else.
    """
    if not isinstance(given, Mapping):
        refuse(kind, plugin, f"figures by name from {action}", got=spelled(given))
    for name, value in given.items():
        if not (isinstance(name, str) and is_number(value)):
            refuse(
                kind, plugin, f"a number by name from {action}", got=f"{spelled(value)} for {name}"
            )
    return {name: float(value) for name, value in given.items()}


def collated(algorithm: Algorithm, steps: Sequence[Any]) -> Batch:
    """The batch that the algorithm makes of steps; its weight and its tokens are numbers.

    Raises:
        PluginError: It failed, or gave something else.
    """
    with plugin_call("algorithm", algorithm, "collate"):
        batch = algorithm.collate(steps)
        weight, num_tokens = getattr(batch, "weight", None), getattr(batch, "num_tokens", None)
    if not (is_number(weight) and math.isfinite(weight) and is_number(num_tokens)):
        got = f"weight {spelled(weight)} and num_tokens {spelled(num_tokens)}"
        refuse("algorithm", algorithm, "a batch whose weight and num_tokens are numbers", got=got)
    return batch


def loss_of(algorithm: Algorithm, batch: Batch) -> tuple[Tensor, dict[str, float]]:
    """The loss of a batch, a scalar with a gradient, finite or not, and figures on it.

    Raises:
        PluginError: It failed, or gave something else.
    """
    with plugin_call("algorithm", algorithm, "step"):
        given: Any = algorithm.step(batch)
    is_pair = isinstance(given, tuple) and len(given) == 2
    if not is_pair or not isinstance(given[0], Tensor):
        got = spelled(given[0] if is_pair else given)
        refuse("algorithm", algorithm, "a loss and figures from step", got=got)
    loss = given[0]
    if loss.ndim != 0 or not loss.is_floating_point() or not loss.requires_grad:
        got = f"one of shape {tuple(loss.shape)}, {loss.dtype}, gradient {loss.requires_grad}"
        refuse("algorithm", algorithm, "a scalar loss with a gradient from step", got=got)
    return loss, figures_of("algorithm", algorithm, given[1], action="step")


def own_weights(algorithm: Algorithm) -> tuple[Parameter, ...]:
    """The algorithm's own weights.

    Raises:
        PluginError: It failed, or gave something else.
    """
    with plugin_call("algorithm", algorithm, "parameters"):
        given = algorithm.parameters()
        found = tuple(given) if isinstance(given, Iterable) else None
    if found is None or not all(isinstance(weight, Parameter) for weight in found):
        refuse("algorithm", algorithm, "a list of torch parameters", got=spelled(given))
    return found or ()


def built_optimizer(
    plugin: OptimizerPlugin, groups: Sequence[dict[str, Any]], lr: float
) -> torch.optim.Optimizer:
    """The optimiser that the plug-in builds over the groups.

    Raises:
        PluginError: It failed, or gave something else.
    """
    with plugin_call("optimizer", plugin, "optimizer"):
        found = plugin.optimizer(groups, lr)
    if not isinstance(found, torch.optim.Optimizer):
        refuse("optimizer", plugin, "a torch optimiser", got=spelled(found))
    return found


def followed(plugin: SchedulePlugin) -> str | None:
    """The figure of an evaluation that a schedule follows; None for one of the step alone.

    Raises:
        PluginError: It failed, or names something else.
    """
    with plugin_call("schedule", plugin, "metric"):
        metric: Any = plugin.metric
    if not (metric is None or isinstance(metric, str)):
        refuse("schedule", plugin, "the name of a figure as metric, or None", got=spelled(metric))
    return metric


def built_schedule(
    plugin: SchedulePlugin, config: TrainingConfiguration, optimizer: torch.optim.Optimizer
) -> LRScheduler:
    """The schedule that the plug-in builds over the optimiser.

    Raises:
        PluginError: It failed, or gave something else.
    """
    steps = {"warmup_steps": config.warmup_steps, "training_steps": config.training_steps}
    with plugin_call("schedule", plugin, "schedule"):
        found = plugin.schedule(optimizer, **steps)
    # Without a metric it would be advanced without a figure, which this schedule requires.
    needs_figure = isinstance(found, ReduceLROnPlateau) and followed(plugin) is None
    if not isinstance(found, LRScheduler) or needs_figure:
        rule = "a torch schedule of the step alone, or name its metric"
        refuse("schedule", plugin, rule, got=spelled(found))
    if found.optimizer is not optimizer:
        refuse("schedule", plugin, "a schedule of the run's optimiser", got="one of another")
    return found


def examined(trainer: Examiner) -> dict[str, float]:
    """The figures of the trainer's evaluation, including the one that chooses the best.

    Raises:
        PluginError: It failed, or gave something else.
    """
    if trainer.evaluator is None:
        return {}
    with plugin_call("trainer", trainer, "examine"):
        given = trainer.examine(trainer.evaluator)
    figures, metric = figures_of("trainer", trainer, given, action="examine"), trainer.config.metric
    if metric not in figures:
        msg = (
            f"training.metric must be a figure of the evaluation, got '{metric}'; "
            f"there are {sorted(figures)}"
        )
        raise ConfigurationError(msg)
    if not (is_built_in(path_of(trainer)) or math.isfinite(figures[metric])):
        refuse("trainer", trainer, f"a finite {metric} from examine", got=spelled(figures[metric]))
    return figures


def reports_of(trainer: Stepper) -> Iterator[StepReport]:
    """The reports of a trainer's steps.

    Raises:
        PluginError: It failed, or yielded something else.
    """
    with plugin_call("trainer", trainer, "steps"):
        stream = iter(trainer.steps())
    while True:
        with plugin_call("trainer", trainer, "steps"):
            report = next(stream, None)
        if report is None:
            return
        if not isinstance(report, StepReport):
            refuse("trainer", trainer, "a StepReport for each update", got=spelled(report))
        yield report


def own_figures(trainer: Any) -> dict[str, float]:
    """A trainer's figures on its last update, as ``trainer/name``.

    Raises:
        PluginError: It failed, or gave something else.
    """
    with plugin_call("trainer", trainer, "figures"):
        given = trainer.figures()
    figures = figures_of("trainer", trainer, given, action="figures")
    return {f"trainer/{name}": value for name, value in figures.items()}


def tensors_by_name(kind: str, plugin: Any) -> Mapping[str, Tensor]:
    """The tensors of a plug-in that a checkpoint holds.

    Raises:
        PluginError: It failed, or gave something else.
    """
    with plugin_call(kind, plugin, "state"):
        state: Mapping[str, Tensor] = plugin.state()
    is_state = isinstance(state, Mapping) and all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in state.items()
    )
    if not is_state:
        refuse(kind, plugin, "tensors by name from state", got=spelled(state))
    return state


def restore(kind: str, plugin: Any, state: Mapping[str, Tensor]) -> None:
    """Gives a plug-in back the tensors that ``tensors_by_name`` found.

    Raises:
        PluginError: It failed.
    """
    with plugin_call(kind, plugin, "load_state"):
        plugin.load_state(state)
