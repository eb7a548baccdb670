"""One optimiser update: a window of micro-batches becomes one change of the trained weights.

The loss of a window is the sum over its micro-batches, on all processes, divided by the window's
weight, so the result does not depend on micro-batches or the number of processes.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from astra_core.agents import Agent, separate_models
from astra_core.algorithm import Algorithm, Batch, loss_of, own_weights
from astra_core.algorithms.movement import moved_means
from astra_core.config import TrainingConfiguration
from astra_core.engine.compilation import compiles
from astra_core.engine.plan import Plan
from astra_core.engine.products.precision import Precision, of_device
from astra_core.errors import TrainingError
from astra_core.models.language_model import LanguageModel
from astra_core.training.distribution.distributed import World
from astra_core.training.distribution.sharding import Shards
from astra_core.training.dumps import batch_tensors, write_dump
from astra_core.training.harness import Experience
from astra_core.training.learner import learners_of
from astra_core.training.optimization.kl_control import is_beyond
from astra_core.training.optimization.parts import trained_weights
from astra_core.training.progress import StepReport
from astra_core.training.team import AgentsAlgorithm, own_means


@dataclass(frozen=True, slots=True)
class Update:
    """The result of an update; the attributes are those of ``StepReport``.

    Attributes:
        is_skipped: True if it was skipped for a loss or a gradient that is not finite.
        is_cut: True if it was left out because the attacker had already moved far enough.
    """

    loss: float
    grad_norm: float
    lr: float
    num_tokens: int
    is_skipped: bool
    metrics: Mapping[str, float]
    train_s: float
    is_cut: bool = False

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
            is_skipped=self.is_skipped or self.is_cut,
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
    """Checks that no more than ``limit`` updates were skipped for a NaN or an infinity.

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


def learning_plan(model: LanguageModel, config: TrainingConfiguration) -> Plan:
    """The model's plan with a configuration's settings of updates, whose precision is settled."""
    device = model.plan.machine.device
    asked = of_device(config.precision, device)
    precision: Precision = "fp32" if asked == "fp32" else "bf16"
    return model.plan.learning(
        precision=precision,
        recomputes=config.gradient_checkpointing,
        compiles=compiles(config.compile, device, num_weights=model.num_parameters),
    )


class Updates:
    """The optimiser, its schedule and the weights it moves; one for each of several agents.

    Attributes:
        plan: How the attacker is run while it learns.
        plans: Of every model that learns, by its agent's name; a lone attacker's is empty.
        learners: One, or for several agents one for each that has its own weights.
        shards: The divided weights, if ``training.sharding`` divides them.
        optimizer: The first learner's optimiser.
        schedule: The first learner's schedule.
        shape: Changes the gradients of a window before they are clipped; None for none.
    """

    def __init__(
        self,
        config: TrainingConfiguration,
        algorithm: Algorithm,
        attacker: LanguageModel,
        *,
        world: World,
        agents: Sequence[Agent] = (),
    ) -> None:
        self._config = config
        self._algorithm = algorithm
        self._world = world
        self._agents = tuple(agent.name for agent in agents)
        self._models = separate_models(agents) or {"": attacker}
        self.plan = learning_plan(attacker, config)
        self.plans = {name: learning_plan(model, config) for name, model in self._models.items()}
        is_divided = config.sharding == "full" and world.size > 1
        self.shards = Shards(attacker, world=world) if is_divided else None
        learned = self.shards.model if self.shards else attacker.model
        extra = {"": own_weights(algorithm)}
        if isinstance(algorithm, AgentsAlgorithm):
            extra = algorithm.own_weights()
        self.learners = learners_of(config, learned, extra, agents=agents)
        self.optimizer, self.schedule = self.learners[0].optimizer, self.learners[0].schedule
        self._norms: dict[str, float] = {}
        self.shape: Callable[[Sequence[Batch]], None] | None = None

    def apply(
        self, window: Sequence[Batch], *, training_step: int, dump: Path | None = None
    ) -> Update:
        """The result of one window's update, of which this process computes its share.

        Args:
            window: Micro-batches of all processes, in the same order on each.
            training_step: Counted from 0; says which parts move.
            dump: Where to write the update's tensors.
        """
        start = time.perf_counter()
        loss, metrics = self.gradients(window, training_step=training_step)
        norm = self.clip()
        is_skipped = not (math.isfinite(loss) and math.isfinite(norm))
        is_cut = is_beyond(self._config.kl, metrics)
        lr = self.learners[0].lr
        if self._agents:
            for learner in self.learners:
                metrics[f"{learner.name}/lr"] = learner.lr
                metrics[f"{learner.name}/grad_norm"] = self._norms[learner.name]
        tensors = self._tensors(window) if dump else {}
        if not (is_skipped or is_cut):
            for learner in self.learners:
                with self.shards.steps(learner.optimizer) if self.shards else nullcontext():
                    learner.step()
            if self.shards:
                self.shards.gather()
        if dump:
            weights = {f"weight/{name}": p.detach() for name, p in self.weights().items()}
            write_dump(dump, tensors | weights, {"loss": loss, "grad_norm": norm, **metrics})
        self.zero_grad()
        return Update(
            loss=loss,
            grad_norm=norm,
            lr=lr,
            num_tokens=sum(batch.num_tokens for batch in window),
            is_skipped=is_skipped,
            metrics=metrics,
            train_s=time.perf_counter() - start,
            is_cut=is_cut,
        )

    def move_schedule(self) -> None:
        """Sets the rate of the next training step."""
        for learner in self.learners:
            learner.move_schedule()

    @property
    def metric(self) -> str | None:
        """The figure of an evaluation that a schedule follows; None if all follow steps."""
        return next((own.metric for own in self.learners if own.metric is not None), None)

    def follow(self, figures: Mapping[str, float]) -> None:
        """Gives schedules the figures of an evaluation that they follow.

        Raises:
            ConfigurationError: The evaluation has no such figure.
        """
        for learner in self.learners:
            learner.follow(figures)

    def zero_grad(self) -> None:
        """Drops all gradients."""
        for learner in self.learners:
            learner.optimizer.zero_grad(set_to_none=True)

    def gradients(
        self, window: Sequence[Batch], *, training_step: int
    ) -> tuple[float, dict[str, float]]:
        """Puts the window's gradients into the active weights; returns loss and mean metrics."""
        weight = sum(batch.weight for batch in window) or 1.0
        totals = {"": 0.0}
        with ExitStack() as scopes:
            if self.shards:
                scopes.enter_context(self.shards.learns())
            for name, model in self._models.items():
                plan = self.plans[name] if name else self.plan
                scopes.enter_context(plan.learns(model.model))
            for batch in window[self._world.rank :: self._world.size]:
                with self.plan.autocast():
                    loss, logs = loss_of(self._algorithm, batch)
                (loss / weight).backward()  # type: ignore[no-untyped-call]
                totals[""] += float(loss.detach()) / weight
                for name, value in logs.items():
                    totals[name] = totals.get(name, 0.0) + value * batch.weight / weight
            self._pass_along(window)
        if self.shape is not None:
            self.shape(window)
        metrics = self._world.sum_of(totals)
        for learner in self.learners:
            learner.clear_inactive(training_step)
        (self.shards or self._world).add_gradients(self.active())
        return metrics.pop(""), moved_means(own_means(metrics, self._agents))

    def _pass_along(self, window: Sequence[Batch]) -> None:
        """Makes passes without a loss if another process has more passes over divided layers."""
        own = len(window[self._world.rank :: self._world.size])
        count = self.shards.num_passes(len(window)) - own if self.shards else 0
        for _ in range(count):
            with self.plan.autocast():
                loss, _ = loss_of(self._algorithm, window[0])
            (0.0 * loss).backward()  # type: ignore[no-untyped-call]

    def scatter(self) -> None:
        """Divides weights and moments that were loaded whole."""
        if self.shards:
            self.shards.scatter(self.optimizer)

    def memory(self) -> dict[str, float]:
        """The memory of this process for divided weights, for the log."""
        return self.shards.figures(self.optimizer) if self.shards else {}

    def clip(self) -> float:
        """The norm of the gradients before each learner's are clipped to ``max_grad_norm``."""
        limit = self._config.max_grad_norm or math.inf
        for learner in self.learners:
            weights = learner.active()
            gradients = [weight.grad for weight in weights if weight.grad is not None]
            if self.shards:
                self._norms[learner.name] = self.shards.clip(gradients, limit)
                continue
            norm = torch.nn.utils.get_total_norm(gradients)
            # torch's own clipping multiplies by 1 below the limit: a useless pass over all
            # nothing. The margin is the one it divides with.
            if float(norm) + 1e-6 > limit:
                torch.nn.utils.clip_grads_with_norm_(weights, limit, norm)
            self._norms[learner.name] = float(norm)
        return math.hypot(*self._norms.values())

    def prepare(self, training_step: int) -> float:
        """The norm of the gradients, after frozen weights' are dropped and the others clipped."""
        for learner in self.learners:
            learner.clear_inactive(training_step)
        return self.clip()

    def active(self) -> list[torch.nn.Parameter]:
        """The weights that the present training step moves."""
        return [parameter for learner in self.learners for parameter in learner.active()]

    def weights(self) -> dict[str, torch.nn.Parameter]:
        """Every trained weight by name; agents after the first have their name in front."""
        found = {}
        for name, model in self._models.items():
            extra = () if name else self._algorithm.parameters()
            for key, weight in trained_weights(model.model, extra).items():
                found[f"{name}/{key}".lstrip("/")] = weight
        return found

    def _tensors(self, window: Sequence[Batch]) -> dict[str, torch.Tensor]:
        found = batch_tensors(window)
        for name, parameter in self.weights().items():
            if parameter.grad is not None:
                found[f"gradient/{name}"] = parameter.grad.detach().clone()
        return found
