"""How a Trainer resumes from a checkpoint; ``policy`` says what may differ."""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from astra_core.config import TrainingConfiguration
from astra_core.training.checkpoint import Checkpoint, CheckpointStore
from astra_core.training.distribution.distributed import World
from astra_core.training.progress import Progress
from astra_core.training.resume.policy import forget_last_look, starting_point, whole_before
from astra_core.training.resume.state import RunState
from astra_core.training.selection.ending import Ending
from astra_core.training.selection.stopping import Best

# A longer run may have continued where a shorter one ended.
_LENGTHS = ("training_steps", "early_stopping")


class Resumable(Protocol):
    """The parts of a Trainer that resuming reads and sets."""

    config: TrainingConfiguration
    store: CheckpointStore | None
    world: World
    best: Best
    progress: Progress
    ending: Ending

    def end(self) -> str:
        """Why the run ends now, in words."""

    def save(self) -> None:
        """Writes a checkpoint of the run as it is now."""


def resume(trainer: Resumable, state: RunState) -> bool:
    """Loads the checkpoint that ``training.checkpoint.resume`` names; True if there is one.

    Raises CheckpointError if the checkpoints are damaged, or of another run than this.
    """
    mode, store, is_first = trainer.config.checkpoint.resume, trainer.store, trainer.world.is_first
    if mode == "never" and not is_first:
        return False
    found = starting_point(store, mode)
    if found is None:
        return False
    checkpoint, folder = found
    trainer.ending.stopping.start()
    changed = _load(trainer, state, found)
    if any(name.startswith(_LENGTHS) for name in changed):
        progress = trainer.progress
        forget_last_look(progress, trainer.best, trainer.config)
        progress.stopped_because = trainer.end()
        if progress.is_partial and not progress.stopped_because:
            _load(trainer, state, (whole_before(checkpoint, folder), folder))
    is_elsewhere = store is not None and folder != store.folder
    if store is not None and is_elsewhere and is_first:
        for name in sorted(trainer.best.models):
            store.adopt(name, folder)
    if changed or is_elsewhere:
        trainer.save()
    trainer.world.barrier()
    return True


def _load(trainer: Resumable, state: RunState, found: tuple[Checkpoint, Path]) -> Iterable[str]:
    """The names of the fields that differ, after a folder's checkpoint is restored."""
    checkpoint, folder = found
    stopping, subject = trainer.ending.stopping, f"checkpoint {folder}"
    trainer.progress, changed = state.load(checkpoint, trainer.best, stopping, subject=subject)
    return changed
