"""A learning rate that falls with every training step, whatever their number."""

from typing import Literal, cast

import torch
from pydantic import Field
from torch.optim.lr_scheduler import LRScheduler

from astra_core.config import Probability, Section
from astra_core.training.optimization.optimizers import SchedulePlugin


class AnnealingSchedule(SchedulePlugin):
    """A rate that falls with every training step, after a linear warm-up."""

    class Options(Section):
        """How it falls."""

        kind: Literal["linear", "exponential"] = "linear"
        rate: Probability = Field(
            0.1, description="Share of the peak (linear) or of itself lost per step."
        )

    def schedule(
        self, optimizer: torch.optim.Optimizer, *, warmup_steps: int, training_steps: int
    ) -> LRScheduler:
        """A schedule that does not read how many training steps there will be."""
        del training_steps
        options = cast(AnnealingSchedule.Options, self.options)

        def factor(step: int) -> float:
            if step < warmup_steps:
                return (step + 1) / warmup_steps
            fallen = step - max(warmup_steps - 1, 0)
            return anneal(1.0, fallen, kind=options.kind, rate=options.rate)

        return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def anneal(
    initial: float, step: int, *, kind: Literal["none", "linear", "exponential"], rate: float
) -> float:
    """The rate after some steps, beginning with ``initial``; never below 0.

    ``linear`` subtracts ``rate`` in each step, ``exponential`` the share ``rate`` of the present
    rate.
    """
    if kind == "linear":
        return max(initial - rate * step, 0.0)
    return initial * (1.0 - rate) ** step if kind == "exponential" else initial
