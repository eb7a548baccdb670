"""A training that begins goes on from the last output, where it would have come by there."""

from pathlib import Path

from astra_core.config import TrainingConfiguration
from astra_core.errors import CheckpointError
from tasks.machine.console import say
from tasks.pipeline.remembered import last_files
from tasks.records.checkpoint import CHECKPOINTS, CheckpointNote, read_note, take_over


def take_over_last(
    output: Path, run: Path, training: TrainingConfiguration, *, updates_key: str
) -> bool:
    """Whether a run that has not begun now has the state of the last output, or that DVC kept.

    It has it only if the same updates come first in it, so that it ends with the bytes of a run
    from the start.

    Args:
        output: The folder of the exported checkpoint.
        run: Where the run keeps its state.
        training: What the run is to do.
        updates_key: Digest of what decides every update of it.
    """
    has_begun = any((run / CHECKPOINTS).glob("step_*"))
    if training.checkpoint.resume != "auto" or has_begun:
        return False
    files = last_files(output)
    note = read_note(files)
    if note is None or not note.is_exported or note.updates_key != updates_key:
        return False
    if why := _obstacle(note, training):
        say(f"{'training':<13}begins anew: {why}")
        return False
    try:
        take_over(files, run)
    except (CheckpointError, KeyError, OSError) as error:
        say(f"{'training':<13}begins anew: {output} is damaged ({type(error).__name__})")
        return False
    say(f"{'training':<13}goes on from {output}, training step {note.num_done}")
    return True


def _obstacle(note: CheckpointNote, training: TrainingConfiguration) -> str:
    """Why a run from the start would not come by the state, in words; empty if it would."""
    from astra_core.training.resume.prolonging import has_same_rates

    if note.num_done > training.training_steps:
        return f"{note.num_done} training steps are done, more than training.training_steps"
    if training.trainer.name != "trainer":
        return "what a custom trainer keeps, and does in a run of another length, is not known"
    if not has_same_rates(training, training_steps=note.training_steps, num_done=note.num_done):
        return (
            "training.schedule depends on training_steps, so the "
            f"{note.num_done} steps that are done would have been others"
        )
    return ""
