"""Whether a run may be prolonged unseen: whether the longer run would have had the same updates."""

import torch

from astra_core.config import TrainingConfiguration
from astra_core.extensions.promises import built_schedule


def has_same_rates(config: TrainingConfiguration, *, training_steps: int, num_done: int) -> bool:
    """Whether a run of another length would have moved the weights as this one did.

    A schedule such as cosine looks ahead at the last step, so a longer run has other rates from
    the first step on.

    Args:
        config: Of the run as it is wanted.
        training_steps: Of the run that there was.
        num_done: Training steps that are done; the rate of the next one counts too.

    Raises:
        PluginError: The schedule is a plug-in that failed.
    """
    if config.training_steps == training_steps:
        return True
    other = config.model_copy(update={"training_steps": training_steps})
    return _rates(config, num_done) == _rates(other, num_done)


def _rates(config: TrainingConfiguration, num_done: int) -> list[float]:
    """The learning rate of each training step that is done, and of the next."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=config.lr)
    schedule = built_schedule(config, optimizer)
    rates = [float(optimizer.param_groups[0]["lr"])]
    for _ in range(num_done):
        optimizer.step()
        schedule.step()
        rates.append(float(optimizer.param_groups[0]["lr"]))
    return rates
