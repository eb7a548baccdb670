"""The progress of a run: one report per optimiser step, one point per evaluation, and a bar."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

from astra_core.extensions.calls import describe, figures_of, plugin_call, refuse


@dataclass(frozen=True, slots=True)
class StepReport:
    """One optimiser update.

    Attributes:
        step: Updates since the start of the run, this one included.
        loss: Mean over the window; NaN or infinity when the update was skipped for it.
        is_skipped: True when a non-finite loss or gradient, or the trust region of
            ``training.kl``, kept the update from being applied.
        metrics: Figures of the algorithm and of the experience, as ``area/name``.
        timings: Figures that differ from run to run. ``time/rollout_s`` (without scoring) and
            ``time/score_s`` with the first update of an experience, ``time/train_s``,
            ``time/eval_s`` with the last update before an evaluation, ``time/tokens_per_s`` of the
            update; ``memory/peak_mib`` and, on a GPU, ``memory/gpu_peak_mib`` since the report
            before.
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
        """The reproducible figures, flat, for a table."""
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
    """An evaluation during training: its steps, its updates and its figures."""

    training_step: int
    step: int
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class Move:
    """How far one experience moved the attacker.

    Attributes:
        nats: KL divergence before || after, mean per probe, by the estimator k3.
        is_cut: True if the rest of the experience was left out.
    """

    training_step: int
    nats: float
    k1_nats: float
    is_cut: bool = False

    def figures(self) -> dict[str, float]:
        """The figures for the log, with the last update of the experience."""
        return {
            "train/experience_nats": self.nats,
            "train/experience_k1_nats": self.k1_nats,
            "train/is_cut": float(self.is_cut),
        }


@dataclass(slots=True)
class Progress:
    """The progress of a run; everything here is in the checkpoint.

    Attributes:
        num_nonfinite: Updates that were skipped for a NaN or an infinity.
        is_partial: True if a budget ended the run among the updates of its last experience.
        stopped_because: Why the run ended, in words; empty while it runs.
        reply_signal: Its value in the first experience that has one; see ``metrics.reply_signal``.
    """

    training_step: int = 0
    step: int = 0
    num_nonfinite: int = 0
    num_empty: int = 0
    is_partial: bool = False
    stopped_because: str = ""
    evaluations: list[EvaluationPoint] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    reply_signal: float | None = None

    def note(self, metrics: Mapping[str, float], *, is_empty: bool) -> None:
        """Keeps the figures of an experience that are about the run as a whole.

        The signal is that of the first experience: later, siblings of an attacker that always
        succeeds also differ only by random replies.
        """
        self.num_empty += int(is_empty)
        if self.reply_signal is None:
            self.reply_signal = metrics.get("rollout/reply_signal")

    def record(self) -> dict[str, Any]:
        """For a checkpoint."""
        return asdict(self)

    def moved_too_far(self, limit: float | None) -> str:
        """A sentence about experiences that moved further, in nats; empty where none did."""
        far = [move for move in self.moves if limit is not None and move.nats > limit]
        if not far:
            return ""
        most = max(far, key=lambda move: move.nats)
        others = f" and {len(far) - 1} more" if len(far) > 1 else ""
        return (
            f"experience {most.training_step}{others} moved the attacker {most.nats:.1f} nats per "
            f"probe, beyond training.kl.warn_per_experience_nats of {limit:g}; lower training.lr, "
            "'astra tune-lr' suggests one"
        )

    @classmethod
    def of(cls, record: dict[str, Any]) -> Self:
        """The progress of a ``record``; other keys are ignored."""
        known = {each.name for each in fields(cls)} & record.keys()
        points = [EvaluationPoint(**point) for point in record["evaluations"]]
        own = [each.name for each in fields(Move)]
        moves = [Move(*(move[name] for name in own)) for move in record.get("moves", ())]
        plain = {name: record[name] for name in known}
        return cls(**{**plain, "evaluations": points, "moves": moves})


class Reports:
    """Passes each update to a listener once, after its figures can no longer change.

    An update is passed on when the next one begins, before a checkpoint is written, or at the end,
    so that a listener's record has every update that a checkpoint has.
    """

    def __init__(self) -> None:
        self._hear: Callable[[StepReport], None] | None = None
        self._pending: StepReport | None = None

    def to(self, hear: Callable[[StepReport], None]) -> None:
        """Sets the listener; without one nothing is kept."""
        self._hear = hear

    def note(self, report: StepReport) -> None:
        """Takes an update, or newer figures of the last one."""
        if self._hear is None:
            return
        if self._pending is not None and self._pending.step != report.step:
            self.flush()
        self._pending = report

    def add_evaluation(self, seconds: float) -> None:
        """Adds the seconds of an evaluation to the update that it followed."""
        if self._pending is not None:
            timings = self._pending.timings
            spent = timings.get("time/eval_s", 0.0) + seconds
            self._pending = replace(self._pending, timings={**timings, "time/eval_s": spent})

    def flush(self) -> None:
        """Passes on the report that is still held back."""
        report, self._pending = self._pending, None
        if report is not None and self._hear is not None:
            self._hear(report)


@contextmanager
def progress_bar(description: str, *, total: int, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Yields a function that sets how many of ``total`` are done; draws on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(file=sys.stderr)) as bar:
        task = bar.add_task(description, total=total, completed=done)
        yield lambda completed: bar.update(task, completed=completed)


def reports_of(trainer: Any) -> Iterator[StepReport]:
    """The reports of a trainer's steps."""
    with plugin_call("trainer", trainer, "steps"):
        stream = iter(trainer.steps())
    while True:
        with plugin_call("trainer", trainer, "steps"):
            report = next(stream, None)
        if report is None:
            return
        if not isinstance(report, StepReport):
            refuse("trainer", trainer, "a StepReport for each update", got=describe(report))
        yield report


def own_figures(trainer: Any) -> dict[str, float]:
    """A trainer's figures on its last update, as ``trainer/name``."""
    with plugin_call("trainer", trainer, "figures"):
        given = trainer.figures()
    figures = figures_of("trainer", trainer, given, action="figures")
    return {f"trainer/{name}": value for name, value in figures.items()}
