"""``models/checkpoint``: the state of a training as it ended, from which a longer one goes on.

It is laid out as a run's own folder: the last checkpoint, the models that it refers to and the
journal of updates; ``checkpoint.json`` says of which run it is. A run that would have done the same
updates takes it over, and ends with the bytes it would have had from the start. So what a run finds
here changes how long it takes, and nothing else.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import TypeAdapter, ValidationError

from astra_core.errors import CheckpointError
from astra_core.files import draft_folder_of, read_json, write_text
from tasks.records.reports import write_record

if TYPE_CHECKING:
    from astra_core.training.trainer import Trainer

FILE = "checkpoint.json"
JOURNAL = "steps.jsonl"
CHECKPOINTS = "checkpoints"


@dataclass(frozen=True, slots=True)
class CheckpointNote:
    """Of which run a checkpoint is.

    Attributes:
        updates_key: Digest of what decides every update: parameters but for the number of
            training steps and for what is written, inputs and code.
        training_steps: That the run was to do.
        num_done: Training steps that it did.
        is_exported: Whether the state is here; without it this note is all.
    """

    updates_key: str
    training_steps: int
    num_done: int
    is_exported: bool

    @classmethod
    def of(cls, trainer: "Trainer", *, updates_key: str) -> Self:
        """Of the run of a Trainer that has ended."""
        config, done = trainer.config, trainer.progress.training_step
        return cls(updates_key, config.training_steps, done, config.checkpoint.export)


def write_checkpoint(note: CheckpointNote, run: Path, folder: Path) -> None:
    """Leaves the last state of the run in ``run`` in ``folder``, or the note alone."""
    from astra_core.training.checkpoint import CheckpointStore, models_of

    checkpoints = CheckpointStore(run / CHECKPOINTS).last() if note.is_exported else []
    with draft_folder_of(folder) as draft:
        # A loop of one's own may save nothing.
        write_record(replace(note, is_exported=bool(checkpoints)), draft / FILE)
        names = {n for path in checkpoints for n in models_of(read_json(path / "record.json"))}
        for name in sorted({*names, *(path.name for path in checkpoints)}):
            shutil.copytree(run / CHECKPOINTS / name, draft / name)
        if checkpoints:
            shutil.copyfile(run / JOURNAL, draft / JOURNAL)


def read_note(files: Mapping[str, Path]) -> CheckpointNote | None:
    """The note among the files of an exported checkpoint; None where there is no usable one."""
    try:
        return TypeAdapter(CheckpointNote).validate_python(read_json(files[FILE]))
    except (OSError, KeyError, ValueError, RecursionError, ValidationError):
        return None


def take_over(files: Mapping[str, Path], run: Path) -> None:
    """Copies an exported state into the folder of a run that has none of its own.

    Args:
        files: Of the exported state, by their path in it.
        run: Where the run keeps its state.

    Raises:
        CheckpointError: Every checkpoint is damaged, or a model that they refer to.
    """
    from astra_core.training.checkpoint import CheckpointStore, models_of

    with draft_folder_of(run / CHECKPOINTS) as draft:
        for name, source in files.items():
            if "/" in name:
                (draft / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, draft / name)
        store = CheckpointStore(draft)
        newest = store.newest()
        if newest is None:
            msg = f"{run / CHECKPOINTS} must hold a checkpoint, got none to take over"
            raise CheckpointError(msg)
        for name in models_of(newest.record):
            store.model(name)
        # Before the checkpoints are there: a run that has some goes by the journal beside them.
        write_text(files[JOURNAL].read_text(encoding="utf-8"), run / JOURNAL)
