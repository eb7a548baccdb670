"""Optimisers and schedules by name; each is torch's or transformers' own, with its options typed.

``parts``, beside this module, decides which weights decay and at which rate each part learns.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import torch
from pydantic import Field
from torch.optim.lr_scheduler import LRScheduler

from astra_core.config import NonNegative, Positive, Section
from astra_core.errors import ConfigurationError
from astra_core.extensions.plugin_class import Plugin


class OptimizerPlugin(Plugin):
    """Builds an optimiser over the given groups."""

    class Options(Section):
        """An optimiser without options."""

        weight_decay: NonNegative = 0.0

    @abstractmethod
    def optimizer(self, groups: Sequence[dict[str, Any]], lr: float) -> torch.optim.Optimizer:
        """A torch optimiser; a group may name its own ``lr`` and ``weight_decay``."""


class _MomentOptions(Section):
    """Options of the Adam family."""

    beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    beta2: float = Field(default=0.999, ge=0.0, lt=1.0)
    eps: Positive = 1e-8
    weight_decay: NonNegative = 0.0
    amsgrad: bool = False


class Adam(OptimizerPlugin):
    """Adam (arXiv:1412.6980); weight decay enters the gradient."""

    class Options(_MomentOptions):
        """See ``torch.optim.Adam``."""

    def optimizer(self, groups: Sequence[dict[str, Any]], lr: float) -> torch.optim.Optimizer:
        """Torch's Adam."""
        return torch.optim.Adam(groups, lr=lr, **_moments(self.options))


class AdamW(OptimizerPlugin):
    """AdamW (arXiv:1711.05101); weight decay is decoupled from the gradient."""

    class Options(_MomentOptions):
        """See ``torch.optim.AdamW``."""

        weight_decay: NonNegative = 0.01

    def optimizer(self, groups: Sequence[dict[str, Any]], lr: float) -> torch.optim.Optimizer:
        """Torch's AdamW."""
        return torch.optim.AdamW(groups, lr=lr, **_moments(self.options))


class SchedulePlugin(Plugin):
    """Builds a learning-rate schedule over training steps, or over evaluations."""

    @abstractmethod
    def schedule(
        self, optimizer: torch.optim.Optimizer, *, warmup_steps: int, training_steps: int
    ) -> LRScheduler:
        """A torch schedule that ``move`` advances."""

    @property
    def metric(self) -> str | None:
        """The figure of an evaluation that it follows, such as ``eval/score_mean``; else None."""
        return None

    def move(self, schedule: LRScheduler, figures: Mapping[str, float] | None = None) -> None:
        """Advances the schedule.

        Args:
            schedule: The result of ``schedule``.
            figures: The figures of an evaluation, right after it; None after a training step.
        """
        if self.metric is None and figures is None:
            schedule.step()
        elif self.metric is not None and figures is not None:
            # torch's types give the step of such a schedule an epoch, though it takes a figure.
            schedule.step(figures[self.metric])  # type: ignore[arg-type]


class TransformersSchedule(SchedulePlugin):
    """Every schedule of ``transformers.get_scheduler`` that is a function of the step alone."""

    class Options(Section):
        """Which schedule, and its own arguments."""

        kind: Literal[
            "constant",
            "constant_with_warmup",
            "linear",
            "cosine",
            "cosine_with_restarts",
            "cosine_with_min_lr",
            "cosine_warmup_with_min_lr",
            "polynomial",
            "inverse_sqrt",
            "warmup_stable_decay",
        ] = "constant"
        arguments: dict[str, float | int | str] = Field(default_factory=dict)

    options: Options

    def schedule(
        self, optimizer: torch.optim.Optimizer, *, warmup_steps: int, training_steps: int
    ) -> LRScheduler:
        """The schedule, shifted by one when it warms up, so that no step has a rate of 0."""
        from transformers import get_scheduler

        options = self.options
        # The only kind that begins above 0 by itself.
        shift = int(bool(warmup_steps) and options.kind != "cosine_warmup_with_min_lr")
        warms_up = bool(warmup_steps) and options.kind == "constant"
        try:
            schedule = get_scheduler(
                "constant_with_warmup" if warms_up else options.kind,
                optimizer,
                num_warmup_steps=warmup_steps,
                num_training_steps=training_steps + shift,
                scheduler_specific_kwargs=dict(options.arguments),
            )
        except (TypeError, ValueError) as error:
            msg = (
                f"training.schedule.options.arguments must suit '{options.kind}', got: {error}; "
                "see transformers.get_scheduler"
            )
            raise ConfigurationError(msg) from error
        # PyTorch warns when a schedule moves before the first update, which is intended here: by
        # the shift, and by an experience with nothing to learn.
        optimizer._opt_called = True  # type: ignore[attr-defined]  # noqa: SLF001
        if shift:
            schedule.step()
        return cast(LRScheduler, schedule)


def _moments(options: Section) -> dict[str, Any]:
    values = options.model_dump(exclude={"weight_decay"})
    values["betas"] = (values.pop("beta1"), values.pop("beta2"))
    # One fused kernel: 311 ms against 62 ms for 124 million parameters on two cores.
    return {**values, "fused": True}
