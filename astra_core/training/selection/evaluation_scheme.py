"""The scheme of a run's evaluations: which attackers are evaluated, and which one is kept."""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from astra_core.config import TrainingConfiguration
from astra_core.errors import CheckpointError, ConfigurationError
from astra_core.evaluator import require_metric
from astra_core.extensions.calls import (
    describe,
    figures_of,
    is_built_in,
    path_of,
    plugin_call,
    refuse,
)
from astra_core.registry import build
from astra_core.training.checkpoint import CheckpointStore
from astra_core.training.distribution.distributed import World
from astra_core.training.learner import configs_of, followed_figure
from astra_core.training.progress import Progress
from astra_core.training.resume.state import RunState
from astra_core.training.selection.stopping import Best

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EvaluationScheme:
    """The scheme that ``training.evaluate`` and ``training.keep`` define together."""

    config: TrainingConfiguration

    @property
    def has_first(self) -> bool:
        """Whether the untrained attacker is evaluated."""
        scheme = self.config.evaluate
        return self.config.eval_first if scheme == "every" else scheme.startswith("first")

    @property
    def has_last(self) -> bool:
        """Whether the attacker is evaluated at the end, however the run ends."""
        return self.config.evaluate in {"every", "last", "first_and_last"}

    def is_due(self, training_step: int) -> bool:
        """Whether the attacker is evaluated after so many training steps."""
        is_last = training_step >= self.config.training_steps
        is_turn = training_step % self.config.eval_every == 0
        return (self.has_last and is_last) or (self.config.evaluate == "every" and is_turn)

    def is_satisfied(self, progress: Progress) -> bool:
        """Whether the last evaluation was of the present attacker, or need not be."""
        points = progress.evaluations
        return not self.has_last or bool(points and points[-1].step == progress.step)

    @property
    def keeps_best(self) -> bool:
        """Whether a run ends with the best attacker rather than the last.

        Without an evaluation of the trained attacker there is nothing to choose from.
        """
        return self.config.keep == "best" and self.has_last


def idle_rule(config: TrainingConfiguration) -> str:
    """A line about patience that can never end a run; empty if it can, or is not set."""
    patience = config.early_stopping.patience
    if patience is None or config.evaluate == "every":
        return ""
    return (
        f"training.early_stopping.patience of {patience} ends nothing where training.evaluate is "
        f"'{config.evaluate}', which evaluates nothing on the way; 'every' does"
    )


def check_evaluations(
    config: TrainingConfiguration, trainer: type[Any], *, is_evaluated: bool, world: World
) -> None:
    """Checks that the schedules of all agents can be followed; warns of patience that is idle.

    Raises:
        ConfigurationError: See ``check_schedule``.
    """
    for own in configs_of(config):
        check_schedule(own, trainer, is_evaluated=is_evaluated)
    if (idle := idle_rule(config)) and world.is_first:
        _LOG.warning(idle)


def check_schedule(
    config: TrainingConfiguration, trainer: type[Any], *, is_evaluated: bool = True
) -> None:
    """Raises ConfigurationError unless a schedule that follows a figure has evaluations."""
    metric = followed_figure(build("schedule", config.schedule))
    if metric is None:
        return
    if config.evaluate != "every" or not is_evaluated:
        got = f"'{config.evaluate}'" if is_evaluated else "a trainer without an evaluator"
        msg = (
            f"training.evaluate must be 'every' for the schedule {config.schedule.name}, which "
            f"follows {metric}, got {got}; evaluate on the way or choose another training.schedule"
        )
        raise ConfigurationError(msg)
    declared = getattr(trainer, "metric_names", ())
    require_metric(metric, declared=declared, key="training.schedule")


def examine(trainer: Any) -> dict[str, float]:
    """The figures of the trainer's evaluation, including the one that chooses the best."""
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
        refuse("trainer", trainer, f"a finite {metric} from examine", got=describe(figures[metric]))
    return figures


class KeptModels:
    """Saves the attacker when it is the best, and loads the best one again.

    Args:
        store: Where they are; without one nothing is kept.
        world: The processes that train together; the first one writes.
    """

    def __init__(
        self, best: Best, state: RunState, *, store: CheckpointStore | None, world: World
    ) -> None:
        self._best = best
        self._state = state
        self._store = store
        self._world = world

    def offer(self, metrics: Mapping[str, float], training_step: int, *, min_delta: float) -> None:
        """Saves the present attacker if its evaluation beats the best by enough."""
        name = f"best_{training_step:06d}"
        is_best = self._best.offer(metrics, training_step, name, min_delta=min_delta)
        if is_best:
            self._best.num_processes = self._world.size
        if is_best and self._store is not None and self._world.is_first:
            self._store.save_model(name, self._state.write_model)

    def put_back(self, score: Callable[[], float]) -> None:
        """Gives the attacker the best weights, and checks that they have the same score as before.

        Nothing is shown where another number of processes scored them, which rounds differently.

        ``score``: computes the attacker's score by the metric that chose the best.

        Raises CheckpointError if they have another score.
        """
        if self._store is None or not self._best.model:
            return
        self._world.barrier()
        folder = self._store.model(self._best.model)
        self._state.read_model(folder)
        best = self._best
        if best.num_processes == self._world.size and (now := score()) != best.value:
            msg = (
                f"{folder} must score {best.metric} {best.value} when loaded again, got {now}; "
                "the run is not reproducible on this machine"
            )
            raise CheckpointError(msg)
