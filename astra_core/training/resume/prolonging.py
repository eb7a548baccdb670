"""Whether a run may be prolonged: whether a longer run would have had the same updates."""

import torch

from astra_core.config import TrainingConfiguration
from astra_core.registry import build
from astra_core.training.learner import built_schedule, configs_of, followed
from astra_core.training.optimization.optimizers import SchedulePlugin


def has_same_rates(config: TrainingConfiguration, *, training_steps: int, num_done: int) -> bool:
    """Whether a run of another length would have moved the weights as this one did.

    A schedule such as cosine looks ahead at the last step, so a longer run has other rates from
    the first step on. One that follows an evaluation may have used the shorter run's last one,
    which a longer run does not make.

    Args:
        config: The configuration of the wanted run.
        training_steps: Training steps of the earlier run.
        num_done: Training steps that are done; the rate of the next one counts too.

    Raises:
        PluginError: The schedule is a plug-in that failed.
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
    if followed(plugin) is not None:
        return False
    return _rates(plugin, config, num_done) == _rates(plugin, other, num_done)


def _rates(plugin: SchedulePlugin, config: TrainingConfiguration, num_done: int) -> list[float]:
    """The learning rate of each training step that is done, and of the next."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=config.lr)
    schedule = built_schedule(plugin, config, optimizer)
    rates = [float(optimizer.param_groups[0]["lr"])]
    for _ in range(num_done):
        optimizer.step()
        schedule.step()
        rates.append(float(optimizer.param_groups[0]["lr"]))
    return rates
