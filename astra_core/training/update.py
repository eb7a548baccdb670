"""One optimiser update: a window of micro-batches becomes one change of the trained weights.

The loss of a window is the sum over its micro-batches, on all processes, divided by the window's
weight, so the result does not depend on micro-batches or the number of processes.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from astra_core.algorithm import Algorithm, Batch
from astra_core.config import TrainingConfiguration
from astra_core.engine.plan import Plan
from astra_core.engine.products.precision import Precision
from astra_core.errors import ConfigurationError, TrainingError
from astra_core.extensions.calls import plugin_call
from astra_core.extensions.promises import (
    built_optimizer,
    built_schedule,
    followed,
    loss_of,
    own_weights,
)
from astra_core.models.language_model import LanguageModel
from astra_core.registry import build
from astra_core.training.distributed import World
from astra_core.training.dumps import batch_tensors, write_dump
from astra_core.training.harness import Experience
from astra_core.training.optimizers import OptimizerPlugin, SchedulePlugin
from astra_core.training.parts import is_active, parameter_groups, trained_weights
from astra_core.training.progress import StepReport


@dataclass(frozen=True, slots=True)
class Update:
    """What an update did; the attributes are those of ``StepReport``."""

    loss: float
    grad_norm: float
    lr: float
    num_tokens: int
    is_skipped: bool
    metrics: Mapping[str, float]
    train_s: float

    def report(
        self, step: int, experience: Experience, memory: Mapping[str, float], *, is_first: bool
    ) -> StepReport:
        """Its report; ``is_first`` adds the experience's own seconds."""
        return StepReport(
            step=step,
            training_step=experience.iteration + 1,
            loss=self.loss,
            grad_norm=self.grad_norm,
            lr=self.lr,
            num_tokens=self.num_tokens,
            is_skipped=self.is_skipped,
            metrics={
                **experience.metrics,
                **{f"train/{name}": value for name, value in self.metrics.items()},
            },
            timings={
                "time/rollout_s": experience.rollout_s if is_first else 0.0,
                "time/score_s": experience.score_s if is_first else 0.0,
                "time/train_s": self.train_s,
                "time/eval_s": 0.0,
                "time/tokens_per_s": self.num_tokens / self.train_s,
                **memory,
            },
        )


def refuse_many_nonfinite(count: int, *, limit: int, last: Update) -> None:
    """Returns if no more than ``limit`` updates were skipped for a NaN or an infinity.

    Raises:
        TrainingError: ``count`` were.
    """
    if count > limit:
        msg = (
            f"training.max_nonfinite_steps allows {limit} non-finite updates, got {count}; last "
            f"loss {last.loss}, gradient norm {last.grad_norm}; lower training.lr, the last good "
            "checkpoint is kept"
        )
        raise TrainingError(msg)


def learning_plan(plan: Plan, config: TrainingConfiguration) -> Plan:
    """The plan with what a configuration, whose precision is settled, says of updates."""
    precision: Precision = "fp32" if config.precision == "fp32" else "bf16"
    return plan.learning(precision=precision, recomputes=config.gradient_checkpointing)


class Updates:
    """The optimiser, its schedule and the weights it moves.

    Attributes:
        plan: How the attacker is run while it learns.
        metric: The figure of an evaluation that the schedule follows; None for one of the step.
    """

    def __init__(
        self,
        config: TrainingConfiguration,
        algorithm: Algorithm,
        attacker: LanguageModel,
        *,
        world: World,
    ) -> None:
        self._config = config
        self._algorithm = algorithm
        self._attacker = attacker
        self._world = world
        self.plan = learning_plan(attacker.plan, config)
        plugin: OptimizerPlugin = build("optimizer", config.optimizer)
        groups = parameter_groups(
            attacker.model,
            own_weights(algorithm),
            weight_decay=float(getattr(plugin.options, "weight_decay", 0.0)),
            lr=config.lr,
            parts=config.parts,
        )
        self._plugin = plugin
        self.optimizer = built_optimizer(plugin, groups, config.lr)
        self._mover: SchedulePlugin = build("schedule", config.schedule)
        self.schedule = built_schedule(self._mover, config, self.optimizer)
        self.metric = followed(self._mover)

    def apply(
        self, window: Sequence[Batch], *, training_step: int, dump: Path | None = None
    ) -> Update:
        """The update by one window, of which this process computes its share.

        Args:
            window: Micro-batches of all processes, in the same order on each.
            training_step: Counted from 0; says which parts move.
            dump: Where to write the update's tensors.
        """
        start = time.perf_counter()
        loss, metrics = self.gradients(window, training_step=training_step)
        norm = self.clip()
        is_skipped = not (math.isfinite(loss) and math.isfinite(norm))
        lr = float(self.optimizer.param_groups[0]["lr"])
        tensors = self._tensors(window) if dump else {}
        if not is_skipped:
            with plugin_call("optimizer", self._plugin, "step"):
                self.optimizer.step()
        if dump:
            weights = {f"weight/{name}": p.detach() for name, p in self.weights().items()}
            write_dump(dump, tensors | weights, {"loss": loss, "grad_norm": norm, **metrics})
        self.optimizer.zero_grad(set_to_none=True)
        return Update(
            loss=loss,
            grad_norm=norm,
            lr=lr,
            num_tokens=sum(batch.num_tokens for batch in window),
            is_skipped=is_skipped,
            metrics=metrics,
            train_s=time.perf_counter() - start,
        )

    def move_schedule(self) -> None:
        """Sets the rate of the next training step."""
        with plugin_call("schedule", self._config.schedule.name, "step"):
            self._mover.move(self.schedule)

    def follow(self, figures: Mapping[str, float]) -> None:
        """Tells a schedule that follows a figure of an evaluation what it was.

        Raises:
            ConfigurationError: The evaluation has no such figure.
        """
        if self.metric is None:
            return
        if self.metric not in figures:
            msg = (
                f"training.schedule must follow a figure of the evaluation, got '{self.metric}'; "
                f"there are {sorted(figures)}"
            )
            raise ConfigurationError(msg)
        with plugin_call("schedule", self._config.schedule.name, "step"):
            self._mover.move(self.schedule, figures)

    def gradients(
        self, window: Sequence[Batch], *, training_step: int
    ) -> tuple[float, dict[str, float]]:
        """Puts the window's gradients into the active weights; returns loss and mean metrics."""
        weight = sum(batch.weight for batch in window) or 1.0
        totals = {"": 0.0}
        with self.plan.learns(self._attacker.model):
            for batch in window[self._world.rank :: self._world.size]:
                with self.plan.autocast():
                    loss, logs = loss_of(self._algorithm, batch)
                (loss / weight).backward()  # type: ignore[no-untyped-call]
                totals[""] += float(loss.detach()) / weight
                for name, value in logs.items():
                    totals[name] = totals.get(name, 0.0) + value * batch.weight / weight
        metrics = self._world.sum_of(totals)
        self._clear_inactive(training_step)
        self._world.add_gradients(self.active())
        return metrics.pop(""), metrics

    def clip(self) -> float:
        """The norm of the gradients before they were cut to ``max_grad_norm``."""
        weights = self.active()
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        limit = self._config.max_grad_norm or math.inf
        # torch's own clipping multiplies by 1 below the limit: a useless pass over all
        # nothing. The margin is the one it divides with.
        if float(norm) + 1e-6 > limit:
            torch.nn.utils.clip_grads_with_norm_(weights, limit, norm)
        return float(norm)

    def prepare(self, training_step: int) -> float:
        """Drops gradients of frozen weights and clips the others; the norm that they had."""
        self._clear_inactive(training_step)
        return self.clip()

    def active(self) -> list[torch.nn.Parameter]:
        """The weights that the present training step moves."""
        return [p for group in self._active_groups for p in group["params"]]

    def weights(self) -> dict[str, torch.nn.Parameter]:
        """Every trained weight by name."""
        return trained_weights(self._attacker.model, self._algorithm.parameters())

    def _clear_inactive(self, training_step: int) -> None:
        """Drops the gradients of frozen weights, so that none remain when they become active."""
        parts = self._config.parts
        self._active_groups = []
        for group in self.optimizer.param_groups:
            if all(is_active(parts[key], training_step) for key in group["parts"]):
                self._active_groups.append(group)
                continue
            for parameter in group["params"]:
                parameter.grad = None

    def _tensors(self, window: Sequence[Batch]) -> dict[str, torch.Tensor]:
        found = batch_tensors(window)
        for name, parameter in self.weights().items():
            if parameter.grad is not None:
                found[f"gradient/{name}"] = parameter.grad.detach().clone()
        return found
