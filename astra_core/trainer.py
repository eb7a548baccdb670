"""The Trainer: a generator of facts about optimiser updates; whoever drives it logs and shows them.

One training step collects one experience and learns from it in one or more optimiser updates. The
loss of an update is the sum over its whole window of micro-batches divided by the window's
weight, so the size of micro-batches, their order and a short last window change nothing. A window
never spans two policies.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch

from astra_core.algorithm import Algorithm, Batch
from astra_core.checkpoint import Checkpoint, CheckpointStore
from astra_core.config import Section, TrainingConfiguration
from astra_core.errors import CheckpointError, TrainingError
from astra_core.evaluator import Evaluator
from astra_core.harness import Experience, Harness
from astra_core.models.causal_lm import LanguageModel
from astra_core.optimizers import parameter_groups
from astra_core.registry import build
from astra_core.rollout import Graph
from astra_core.sampler import Sampler
from astra_core.stopping import Best, Stopping
from astra_core.trainer_state import load_tensors, optimizer_record, restore_optimizer, tensors_of


@dataclass(frozen=True, slots=True)
class StepReport:
    """One optimiser update.

    Attributes:
        step: Updates since the start of the run, this one included.
        training_step: The experience it learned from, counted from 1.
        loss: Mean over the window; NaN or infinity when the update was skipped for it.
        grad_norm: Before clipping.
        lr: Of the first parameter group.
        num_tokens: Tokens the attacker read in this update.
        is_skipped: True when a non-finite loss or gradient kept the update from being applied.
        metrics: Of the algorithm and of the experience, as ``area/name``.
        timings: Seconds: ``time/rollout_s`` (once per experience), ``time/train_s``.
    """

    step: int
    training_step: int
    loss: float
    grad_norm: float
    lr: float
    num_tokens: int
    is_skipped: bool
    metrics: dict[str, float]
    timings: dict[str, float]

    def row(self) -> dict[str, float]:
        """What is reproducible of it, flat, for a table."""
        return {
            "step": self.step,
            "training_step": self.training_step,
            "train/loss": self.loss,
            "train/grad_norm": self.grad_norm,
            "train/lr": self.lr,
            "train/num_tokens": self.num_tokens,
            "train/is_skipped": float(self.is_skipped),
            **self.metrics,
        }


@dataclass(frozen=True, slots=True)
class EvaluationPoint:
    """An evaluation during training: after how many steps and updates, and what it gave."""

    training_step: int
    step: int
    metrics: dict[str, float]


@dataclass(slots=True)
class Progress:
    """Where a run is; everything here is in the checkpoint."""

    training_step: int = 0
    step: int = 0
    num_nonfinite: int = 0
    num_empty: int = 0
    stopped_because: str = ""
    evaluations: list[EvaluationPoint] = field(default_factory=list)


class Trainer:
    """Optimises the sampler's attacker with an algorithm's loss.

    Args:
        config: What to do; the optimiser and the schedule are built from it.
        sampler: Owns the System, the prompts, the reward and the seed.
        algorithm: Turns graphs into a loss.
        evaluator: Without one there is no evaluation, no best checkpoint and no patience.
        store: Without one nothing is saved and nothing is resumed.
        first_graphs: Rollouts of the untrained attacker, learned from in the first training step.
    """

    Options = Section

    def __init__(
        self,
        config: TrainingConfiguration,
        sampler: Sampler,
        algorithm: Algorithm,
        *,
        evaluator: Evaluator | None = None,
        store: CheckpointStore | None = None,
        first_graphs: Sequence[Graph] | None = None,
    ) -> None:
        self.config = config
        self.sampler = sampler
        self.algorithm = algorithm
        self.evaluator = evaluator
        self.store = store
        self.progress = Progress()
        self.best = Best(metric=config.metric, mode=config.mode)
        self._first_graphs = first_graphs
        self._harness = Harness(sampler, algorithm, num_episodes=config.num_episodes_per_experience)
        optimizer = build("optimizer", config.optimizer)
        groups = parameter_groups(
            self._attacker.model,
            algorithm.parameters(),
            weight_decay=float(getattr(optimizer.options, "weight_decay", 0.0)),
        )
        self._trained = [parameter for group in groups for parameter in group["params"]]
        self._optimizer = optimizer.optimizer(groups, config.lr)
        self._schedule = build("schedule", config.schedule).schedule(
            self._optimizer,
            warmup_steps=config.warmup_steps,
            training_steps=config.training_steps,
        )
        self._stopping = Stopping(config.early_stopping)

    def train(self, on_step: Callable[[StepReport], None] | None = None) -> Progress:
        """Drains ``steps`` and says where it ended; the best weights are then in the attacker."""
        for report in self.steps():
            if on_step is not None:
                on_step(report)
        return self.progress

    def resume(self) -> bool:
        """Goes on from the newest undamaged checkpoint of the store, if it has one.

        Raises:
            CheckpointError: The checkpoints are damaged or of another configuration.
        """
        checkpoint = self.store.newest() if self.store else None
        if checkpoint is None:
            return False
        self._restore(checkpoint)
        return True

    def steps(self) -> Iterator[StepReport]:
        """One report per optimiser update, from where the loaded state stopped.

        After the last, the newest state has been saved and the best weights are in the attacker.

        Raises:
            TrainingError: Too many updates met a NaN or an infinity.
        """
        self._stopping.start()
        if not self.progress.training_step and not self.progress.evaluations:
            self._evaluate()
            self._save()
        while not self.progress.stopped_because:
            yield from self._training_step()
            self._conclude_training_step()
        self._restore_best()

    def _training_step(self) -> Iterator[StepReport]:
        iteration = self.progress.training_step
        graphs = self._first_graphs if iteration == 0 else None
        experience = self._harness.experience(iteration, graphs=graphs)
        if not experience.steps:
            self.progress.num_empty += 1
        timing = experience.rollout_s
        for epoch in range(self.config.epochs_per_experience):
            batches = self._harness.batches(
                experience, epoch=epoch, batch_size=self.config.batch_size
            )
            for window in _windows(batches, self.config.gradient_accumulation_steps):
                yield self._update(window, experience, timing)
                timing = 0.0
        self._stopping.note(experience.metrics)

    def _update(
        self, window: Sequence[Batch], experience: Experience, rollout_s: float
    ) -> StepReport:
        start = time.perf_counter()
        weight = sum(batch.weight for batch in window)
        loss, metrics = self._accumulate(window, weight)
        limit = self.config.max_grad_norm or math.inf
        norm = float(torch.nn.utils.clip_grad_norm_(self._trained, limit))
        is_skipped = not (math.isfinite(loss) and math.isfinite(norm))
        lr = float(self._optimizer.param_groups[0]["lr"])
        if not is_skipped:
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.progress.step += 1
        self.progress.num_nonfinite += int(is_skipped)
        self._refuse_many_nonfinite(loss, norm)
        return StepReport(
            step=self.progress.step,
            training_step=experience.iteration + 1,
            loss=loss,
            grad_norm=norm,
            lr=lr,
            num_tokens=sum(batch.num_tokens for batch in window),
            is_skipped=is_skipped,
            metrics={**experience.metrics, **{f"train/{k}": v for k, v in metrics.items()}},
            timings={"time/rollout_s": rollout_s, "time/train_s": time.perf_counter() - start},
        )

    def _accumulate(self, window: Sequence[Batch], weight: float) -> tuple[float, dict[str, float]]:
        """Gradients of the window's loss, the loss itself, and weighted means of the metrics."""
        total, metrics = 0.0, dict[str, float]()
        for batch in window:
            with self._autocast():
                loss, logs = self.algorithm.step(batch)
            (loss / weight).backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach()) / weight
            for name, value in logs.items():
                metrics[name] = metrics.get(name, 0.0) + value * batch.weight / weight
        return total, metrics

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.config.precision == "fp32":
            return nullcontext()
        return torch.autocast(self._attacker.device.type, dtype=torch.bfloat16)

    def _conclude_training_step(self) -> None:
        self._schedule.step()
        self.progress.training_step += 1
        is_last = self.progress.training_step >= self.config.training_steps
        is_due = self.progress.training_step % self.config.eval_every == 0
        if is_due or is_last:
            self._evaluate()
        self.progress.stopped_because = self._stopping.reason(self.progress.step, self.best) or (
            "all training steps are done" if is_last else ""
        )
        is_due = self.progress.training_step % self.config.checkpoint.save_every == 0
        if is_due or self.progress.stopped_because:
            self._save()

    def _evaluate(self) -> None:
        """Evaluates the attacker as it is, and writes it as the best so far if it is."""
        if self.evaluator is None:
            return
        metrics = self.evaluator.evaluate(self.sampler.system).metrics()
        self.progress.evaluations.append(
            EvaluationPoint(self.progress.training_step, self.progress.step, metrics)
        )
        name = f"best_{self.progress.training_step:06d}"
        is_best = self.best.offer(
            metrics,
            self.progress.training_step,
            name,
            min_delta=self.config.early_stopping.min_delta,
        )
        if is_best and self.store is not None:
            self.store.save_model(name, self._attacker.save)

    def _restore_best(self) -> None:
        """Puts the best weights into the attacker and shows that they score what they scored."""
        if self.evaluator is None or self.store is None or not self.best.model:
            return
        folder = self.store.model(self.best.model)
        saved = LanguageModel.load(folder, separator=self.sampler.system.config.separator)
        own = self._attacker.model
        with torch.no_grad():
            own.load_state_dict(saved.model.state_dict())
        value = self.evaluator.evaluate(self.sampler.system).metrics()[self.config.metric]
        if value != self.best.value:
            msg = (
                f"{folder} must score {self.config.metric} {self.best.value} when loaded again, "
                f"got {value}; the run is not reproducible on this machine"
            )
            raise CheckpointError(msg)

    def _save(self) -> None:
        if self.store is None:
            return
        progress = self.progress
        record = {
            "step": progress.step,
            "num_nonfinite": progress.num_nonfinite,
            "num_empty": progress.num_empty,
            "stopped_because": progress.stopped_because,
            "evaluations": [
                {"training_step": e.training_step, "step": e.step, "metrics": e.metrics}
                for e in progress.evaluations
            ],
            "best": self.best.record(),
            "stopping": self._stopping.record(),
            "optimizer": optimizer_record(self._optimizer),
            "schedule": self._schedule.state_dict(),
            "config": self.config.model_dump(mode="json"),
        }
        tensors = tensors_of(
            self._attacker.model,
            self._optimizer,
            self.sampler.reward.state(),
            self.algorithm.state(),
        )
        self.store.save(Checkpoint(progress.training_step, tensors, record))

    def _restore(self, checkpoint: Checkpoint) -> None:
        record = checkpoint.record
        config = self.config.model_dump(mode="json")
        if record["config"] != config:
            changed = sorted(key for key in config if record["config"].get(key) != config[key])
            msg = (
                f"training.{changed} must be as in the checkpoint, got other values; "
                "start a new run or restore them"
            )
            raise CheckpointError(msg)
        reward, algorithm = load_tensors(checkpoint.tensors, self._attacker.model)
        self.sampler.reward.load_state(reward)
        self.algorithm.load_state(algorithm)
        restore_optimizer(self._optimizer, record["optimizer"], checkpoint.tensors)
        self._schedule.load_state_dict(record["schedule"])
        self.best.load(record["best"])
        self._stopping.load(record["stopping"])
        self.progress = Progress(
            training_step=checkpoint.step,
            step=record["step"],
            num_nonfinite=record["num_nonfinite"],
            num_empty=record["num_empty"],
            stopped_because=record["stopped_because"],
            evaluations=[EvaluationPoint(**point) for point in record["evaluations"]],
        )

    def _refuse_many_nonfinite(self, loss: float, norm: float) -> None:
        if self.progress.num_nonfinite > self.config.max_nonfinite_steps:
            msg = (
                f"training.max_nonfinite_steps allows {self.config.max_nonfinite_steps} non-finite "
                f"updates, got {self.progress.num_nonfinite}; last loss {loss}, gradient norm "
                f"{norm}; lower training.lr, the last good checkpoint is kept"
            )
            raise TrainingError(msg)

    @property
    def _attacker(self) -> LanguageModel:
        return self.sampler.system.attacker


def _windows(batches: Iterator[Batch], size: int) -> Iterator[list[Batch]]:
    """Consecutive runs of ``size`` micro-batches; a short last one is kept."""
    while window := list(islice(batches, size)):
        yield window
