"""A learning rate that falls when a figure of the evaluations stops improving."""

from collections.abc import Mapping
from typing import Any, Literal, SupportsFloat, cast

import torch
from pydantic import Field
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from astra_core.config import NonNegative, Section
from astra_core.training.optimization.optimizers import SchedulePlugin


class PlateauSchedule(SchedulePlugin):
    """Torch's ``ReduceLROnPlateau`` over evaluations, after a linear warm-up over steps."""

    class Options(Section):
        """The figure that is followed, and how the rate falls when it stops improving."""

        metric: str = Field(
            "eval/attack_success_rate",
            pattern="^eval/",
            description="The figure of an evaluation that is followed.",
        )
        mode: Literal["max", "min"] = "max"
        factor: float = Field(0.1, gt=0.0, lt=1.0, description="Factor of a reduction.")
        patience: int = Field(
            10, ge=0, description="Evaluations without improvement before a reduction."
        )
        threshold: NonNegative = Field(1e-4, description="A smaller gain is no improvement.")
        threshold_mode: Literal["rel", "abs"] = Field(
            "rel", description="Whether the threshold is a share of the best figure."
        )
        cooldown: int = Field(
            0, ge=0, description="Evaluations after a reduction that do not count."
        )
        min_lr: NonNegative = Field(0.0, description="No rate falls below it.")

    options: Options

    @property
    def metric(self) -> str:
        """The figure of an evaluation that it follows."""
        return self.options.metric

    def schedule(
        self, optimizer: torch.optim.Optimizer, *, warmup_steps: int, training_steps: int
    ) -> LRScheduler:
        """A schedule that does not read how many training steps there will be."""
        del training_steps
        settings = self.options.model_dump(exclude={"metric"})
        return WarmPlateau(optimizer, warmup_steps=warmup_steps, **settings)

    def move(self, schedule: LRScheduler, figures: Mapping[str, float] | None = None) -> None:
        """Warms up after a training step, and follows the figure after an evaluation."""
        own = cast(WarmPlateau, schedule)
        if figures is None:
            own.warm_up()
        else:
            own.step(figures[self.metric])


class WarmPlateau(ReduceLROnPlateau):
    """Rates that rise to their peaks in ``warmup_steps``, and fall after that.

    Evaluations before the peaks are reached do not count.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, *, warmup_steps: int, **settings: Any
    ) -> None:
        # A rate of 1e-6 should fall too, which torch's smallest step of 1e-8 can prevent.
        super().__init__(optimizer, eps=0.0, **settings)
        self.warmup_steps = warmup_steps
        self.num_done = 0
        self.peaks = [float(group["lr"]) for group in optimizer.param_groups]
        self._set_rates()

    def warm_up(self) -> None:
        """Sets the rates of the next training step."""
        self.num_done += 1
        self._set_rates()

    def step(self, metrics: SupportsFloat, epoch: int | None = None) -> None:  # type: ignore[override]
        """Counts an evaluation and reduces the rates if too many brought no improvement."""
        if self.num_done + 1 >= self.warmup_steps:
            super().step(metrics, epoch)

    def _set_rates(self) -> None:
        if self.num_done < self.warmup_steps:
            share = (self.num_done + 1) / self.warmup_steps
            for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
                group["lr"] = peak * share
