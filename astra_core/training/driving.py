"""A whole training with a listener, for any trainer, also with its own ``train``."""

from collections import deque
from collections.abc import Callable

from astra_core.errors import TrainingError
from astra_core.extensions.calls import path_of, plugin_call
from astra_core.training.progress import StepReport, reports_of
from astra_core.training.trainer import Trainer


def drive(trainer: Trainer, hear: Callable[[StepReport], None]) -> None:
    """Trains to the end; the attacker then has the best weights.

    A custom ``train`` is called, and everything else of the Trainer keeps working: each update is
    noticed, whether by ``update``, ``steps`` or the optimiser. Before it the untrained attacker is
    evaluated; after it the last weights are evaluated, the state is saved and the best weights are
    loaded, as around the Trainer's own loop.

    ``hear``: called with each update, once; before any checkpoint that has it.

    Raises TrainingError if a custom ``train`` reported no update, or continued beyond the last
    training step.
    """
    if type(trainer).train is Trainer.train:
        for report in reports_of(trainer):
            hear(report)
        return
    trainer.reports.to(hear)
    if not trainer.progress.stopped_because:
        trainer.begin()
        with plugin_call("trainer", trainer, "train"):
            trainer.train()
        _conclude(trainer)
    deque(Trainer.steps(trainer), maxlen=0)
    trainer.reports.flush()


def _conclude(trainer: Trainer) -> None:
    """Sets the reason for the end, if its ``train`` did not."""
    trainer.by_hand.end()
    _check(trainer)
    if not trainer.progress.stopped_because:
        trainer.progress.stopped_because = trainer.end() or "its train() has returned"
        trainer.save()


def _check(trainer: Trainer) -> None:
    progress, subject = trainer.progress, f"trainer '{path_of(trainer)}'"
    if not progress.step:
        msg = (
            f"{subject} must tell of its updates, got none from its train(); call self.update(...) "
            "in it, or self.harness.step(batch) and then self.optimizer.step()"
        )
        raise TrainingError(msg)
    if progress.training_step > trainer.config.training_steps:
        msg = (
            f"{subject} must end after {trainer.config.training_steps} training steps, got "
            f"{progress.training_step} from its train(); begin at self.progress.training_step, "
            "where a resumed run stands, and count each step once"
        )
        raise TrainingError(msg)
