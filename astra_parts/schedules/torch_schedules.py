"""Torch's own learning-rate schedules, by the name of their class and with its arguments."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from astra_core.config import Section
from astra_core.training.optimization.optimizers import SchedulePlugin

TorchKind = Literal[
    "StepLR",
    "MultiStepLR",
    "ExponentialLR",
    "LinearLR",
    "ConstantLR",
    "PolynomialLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
]


class TorchSchedule(SchedulePlugin):
    """A schedule of ``torch.optim.lr_scheduler`` over training steps, after a linear warm-up."""

    class Options(Section):
        """The class, and its arguments beside the optimiser."""

        kind: TorchKind = "CosineAnnealingLR"
        arguments: dict[str, float | int | str | tuple[int, ...]] = Field(
            default_factory=dict,
            description="T_max of CosineAnnealingLR: left out, the training steps after the "
            "warm-up.",
        )

        @model_validator(mode="after")
        def _suits_torch(self) -> Self:
            still = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
            try:
                of_torch(self.kind, still, self.arguments, num_steps=1)
            except (TypeError, ValueError) as error:
                msg = (
                    f"arguments must suit torch.optim.lr_scheduler.{self.kind}, torch says: {error}"
                )
                raise ValueError(msg) from error
            return self

    options: Options

    def schedule(
        self, optimizer: torch.optim.Optimizer, *, warmup_steps: int, training_steps: int
    ) -> LRScheduler:
        """Torch's schedule from the peak on, which the last step of the warm-up reaches."""
        rise = max(warmup_steps - 1, 0)
        # Moved before the first update on purpose: see TransformersSchedule.
        optimizer._opt_called = True  # type: ignore[attr-defined]  # noqa: SLF001
        kind, arguments = self.options.kind, self.options.arguments
        own = of_torch(kind, optimizer, arguments, num_steps=max(training_steps - rise, 1))
        if not rise:
            return own
        start = 1.0 / warmup_steps
        first = lr_scheduler.LinearLR(optimizer, start_factor=start, total_iters=rise)
        return lr_scheduler.SequentialLR(optimizer, [first, own], milestones=[rise])


def of_torch(
    kind: TorchKind,
    optimizer: torch.optim.Optimizer,
    arguments: Mapping[str, Any],
    *,
    num_steps: int,
) -> LRScheduler:
    """The schedule of this name; a cosine without ``T_max`` ends after ``num_steps``.

    Raises TypeError if an argument is missing or unknown, ValueError if one is out of range.
    """
    default = {"T_max": num_steps} if kind == "CosineAnnealingLR" else {}
    known = Milestones if kind == "MultiStepLR" else getattr(lr_scheduler, kind)
    found: LRScheduler = known(optimizer, **default | dict(arguments))
    return found


class Milestones(lr_scheduler.MultiStepLR):
    """Torch's schedule, with a state that may have been JSON, which has no counter."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the milestones in the type that torch uses."""
        milestones = Counter(state_dict["milestones"])
        super().load_state_dict({**state_dict, "milestones": milestones})
