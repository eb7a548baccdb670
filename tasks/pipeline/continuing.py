"""A new training continues from the last output if it would have reached that state anyway."""

from pathlib import Path
from typing import Any

from astra_core.config import TrainingConfiguration
from astra_core.errors import CheckpointError
from tasks.machine.console import say
from tasks.records.checkpoint import CHECKPOINTS, CheckpointNote, read_note, take_over
from tasks.tracking.lineage.provenance import dvc_digests


def take_over_last(
    output: Path, run: Path, training: TrainingConfiguration, *, updates_key: str
) -> bool:
    """Whether a run that has not begun was given the state of the last output.

    The output is the one on disk or in DVC's cache. The run is given its state only if its own
    first updates would be the same, so that it ends with the bytes of a run from the start.
    """
    has_begun = any((run / CHECKPOINTS).glob("step_*"))
    if training.checkpoint.resume != "auto" or has_begun:
        return False
    files = last_files(output)
    note = read_note(files)
    if note is None or not note.is_exported or note.updates_key != updates_key:
        return False
    if why := _obstacle(note, training):
        say(f"{'training':<13}starts over: {why}")
        return False
    try:
        take_over(files, run)
    except (CheckpointError, KeyError, OSError) as error:
        say(f"{'training':<13}starts over: {output} is damaged ({type(error).__name__})")
        return False
    say(f"{'training':<13}continues from {output}, training step {note.num_done}")
    return True


def _obstacle(note: CheckpointNote, training: TrainingConfiguration) -> str:
    """Why a run from the start would not reach the state, in words; empty if it would."""
    from astra_core.training.learner import has_same_rates

    if note.num_done > training.training_steps:
        return f"{note.num_done} training steps are done, more than training.training_steps"
    if training.trainer.name != "trainer":
        return "what a custom trainer saves, and does in a run of another length, is unknown"
    if not has_same_rates(training, training_steps=note.training_steps, num_done=note.num_done):
        return (
            "training.schedule depends on training_steps, so the "
            f"{note.num_done} steps that are done would have been different"
        )
    return ""


def last_files(folder: Path) -> dict[str, Path]:
    """The files of a stage's output from before the stage began, by their path in it.

    They are in the folder, or in DVC's cache by the digests in ``dvc.lock``: DVC deletes an output
    before its stage runs, and writes the lock only afterwards. They may be read, never written.
    """
    found = {
        path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()
    }
    digest = dvc_digests().get(folder.as_posix())
    return found or (_cached_files(digest) if digest is not None else {})


def _cached_files(digest: str) -> dict[str, Path]:
    """The files of a folder in DVC's cache; none if any of them is missing."""
    from dvc.exceptions import DvcException
    from dvc.repo import Repo
    from dvc_data.hashfile.hash_info import HashInfo
    from dvc_data.hashfile.tree import Tree
    from dvc_objects.errors import ObjectFormatError

    try:
        with Repo(".") as repo:
            cache: Any = repo.cache.local
            tree = Tree.load(cache, HashInfo("md5", digest))
            found = {
                "/".join(key): Path(cache.oid_to_path(info.value))
                for key, _, info in tree
                if info is not None
            }
    except (DvcException, ObjectFormatError, OSError):
        return {}
    return found if all(path.is_file() for path in found.values()) else {}
