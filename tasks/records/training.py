"""The record of a training: ``reports/training.json`` and a line for the screen."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.records.attacker import Kept
from tasks.records.models import Parent

if TYPE_CHECKING:
    from astra_core.training.trainer import Trainer

TRAINING = Path("reports/training.json")
KEPT_UNTRAINED = (
    "The attacker kept is that of step 0: none that was trained did better on the dev prompts."
)
_IDLE = (
    "nothing was learned: the rewards of siblings were equal or, where the algorithm has one, no "
    "further apart than its margin (training.algorithm.options)"
)


@dataclass(frozen=True, slots=True)
class Measured:
    """The value of the metric by which training chooses the best attacker."""

    metric: str
    value: float | None


@dataclass(frozen=True, slots=True)
class BestMeasured:
    """The best value, and after how many training steps it was found."""

    metric: str
    value: float | None
    training_step: int


@dataclass(frozen=True, slots=True)
class TrainingRecord:
    """How a training went.

    Attributes:
        num_nonfinite: Updates skipped because the loss or a gradient was not finite.
        num_empty_experiences: Experiences without a step to learn from.
        first: The metric before the first update; null if it was not evaluated then.
        best: The best of all evaluations; null if there was none.
        kept: Whether the exported attacker is the best of those evaluated, or the last.
        moves: How far each experience moved the attacker, as ``Move``; oldest first.
        kl_warning: About experiences that moved too far; empty where none did.
        reply_signal: Share of the first siblings' differences in reward that is not chance, at
            most 1; null if it is unknown.
        signal_warning: A warning if that share is close to 0; else empty.
        target: Use of a remote target: calls, tokens, cost, seconds per call.
    """

    run_key: str
    checkpoint_digest: str
    training_steps: int
    optimizer_steps: int
    engine: str
    training_precision: str
    system_precision: str
    num_nonfinite: int
    num_empty_experiences: int
    stopped_because: str
    first: Measured | None
    best: BestMeasured | None
    evaluations: tuple[dict[str, int | float | None], ...]
    kept: Kept = "best"
    parent: Parent | None = None
    moves: tuple[dict[str, int | float | bool], ...] = ()
    kl_warning: str = ""
    reply_signal: float | None = None
    signal_warning: str = ""
    target: dict[str, float] | None = None

    @property
    def is_untrained(self) -> bool:
        """Whether the attacker that is kept is the one of before the first update."""
        return self.kept == "best" and self.best is not None and self.best.training_step == 0


@dataclass(frozen=True, slots=True)
class TrainingSummary:
    """How training went.

    Attributes:
        first: Its value before the first update; None if it was not evaluated then.
        value: The exported attacker's value; None if that one was not evaluated.
        kept: Whether the exported attacker is the best of those evaluated, or the last.
        kl_warning: About experiences that moved too far; empty where none did.
        signal_warning: About siblings that differ by chance alone; empty where they do not.
        idle_warning: About a training without an update; empty where there was one.
    """

    training_steps: int
    optimizer_steps: int
    metric: str
    first: float | None
    value: float | None
    kept: Kept
    training_step: int
    stopped_because: str
    kl_warning: str = ""
    signal_warning: str = ""
    idle_warning: str = ""

    def summary(self) -> str:
        """One line."""
        where = f"step {self.training_step} of {self.training_steps}; {self.stopped_because}"
        for warning in (self.idle_warning, self.kl_warning, self.signal_warning):
            if warning:
                where += f"; WARNING: {warning}"
        if self.value is None:
            return f"the attacker as it was last, not evaluated ({where})"
        name = self.metric.removeprefix("eval/").replace("_", " ")
        before = "" if self.first is None else f"{self.first:.3f} -> "
        return f"{name} on dev {before}{self.value:.3f} ({where})"


def summary_of(trainer: "Trainer") -> TrainingSummary:
    """The summary of a training, with the exported attacker's metric where it was evaluated."""
    from tasks.records.signal import faint_signal

    progress, best, metric = trainer.progress, trainer.best, trainer.config.metric
    points = progress.evaluations
    is_best = trainer.scheme.keeps_best and bool(best.model)
    is_known = is_best or bool(points and points[-1].step == progress.step)
    last = points[-1].metrics[metric] if points else None
    return TrainingSummary(
        training_steps=progress.training_step,
        optimizer_steps=progress.step,
        metric=metric,
        first=points[0].metrics[metric] if points and not points[0].step else None,
        value=(best.value if is_best else last) if is_known else None,
        kept="best" if is_best else "last",
        training_step=best.training_step if is_best else progress.training_step,
        stopped_because=progress.stopped_because,
        kl_warning=progress.moved_too_far(trainer.config.kl.warn_per_experience_nats),
        signal_warning=faint_signal(progress.reply_signal),
        idle_warning="" if progress.step or progress.num_nonfinite else _IDLE,
    )


def record_of(
    trainer: "Trainer",
    summary: TrainingSummary,
    *,
    run_key: str,
    digest: str,
    parent: Parent | None = None,
) -> TrainingRecord:
    """The record of a training whose exported weights have this digest."""
    progress, best, metric = trainer.progress, trainer.best, summary.metric
    is_examined = bool(progress.evaluations)
    return TrainingRecord(
        run_key=run_key,
        checkpoint_digest=digest,
        training_steps=summary.training_steps,
        optimizer_steps=summary.optimizer_steps,
        engine=str(trainer.plan),
        training_precision=trainer.config.precision,
        system_precision=trainer.sampler.system.config.precision,
        num_nonfinite=progress.num_nonfinite,
        num_empty_experiences=progress.num_empty,
        stopped_because=summary.stopped_because,
        kept=summary.kept,
        first=None if summary.first is None else Measured(metric, summary.first),
        best=BestMeasured(metric, best.value, best.training_step) if is_examined else None,
        evaluations=tuple(
            {"training_step": point.training_step, "step": point.step, **point.metrics}
            for point in progress.evaluations
        ),
        parent=parent,
        moves=tuple(asdict(move) for move in progress.moves),
        kl_warning=summary.kl_warning,
        reply_signal=progress.reply_signal,
        signal_warning=summary.signal_warning,
    )
