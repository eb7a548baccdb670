"""``models/checkpoint``: the final state of a training, from which a longer one continues.

It has the layout of a run's own folder: the last checkpoint, the models that it refers to and the
journal of updates; ``checkpoint.json`` names its run. A run that would do the same updates takes it
over, and ends with the same bytes as from the start. So what a run finds here changes only how long
it takes.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from astra_core.errors import CheckpointError, DataError
from astra_core.files import draft_folder_of, read_json, write_text
from tasks.records.reports import csv_text, nan_as_null, read_record, write_record

if TYPE_CHECKING:
    from astra_core.training.trainer import Trainer

FILE = "checkpoint.json"
JOURNAL = "steps.jsonl"
CHECKPOINTS = "checkpoints"


@dataclass(frozen=True, slots=True)
class CheckpointNote:
    """Which run a checkpoint belongs to.

    Attributes:
        updates_key: Digest of what decides every update: inputs, code, and parameters except for
            the number of training steps and for what is written.
        is_exported: Whether the state is here; if not, there is only this note.
    """

    updates_key: str
    training_steps: int
    num_done: int
    is_exported: bool

    @classmethod
    def of(cls, trainer: "Trainer", *, updates_key: str) -> Self:
        """The note of a Trainer's run that has ended."""
        config, done = trainer.config, trainer.progress.training_step
        return cls(updates_key, config.training_steps, done, config.checkpoint.export)


def write_checkpoint(note: CheckpointNote, run: Path, folder: Path) -> None:
    """Copies the last state of the run in ``run`` to ``folder``, or writes only the note."""
    from astra_core.training.checkpoint import CheckpointStore, models_of

    checkpoints = CheckpointStore(run / CHECKPOINTS).last() if note.is_exported else []
    with draft_folder_of(folder) as draft:
        # A custom training loop may save nothing.
        write_record(replace(note, is_exported=bool(checkpoints)), draft / FILE)
        names = {n for path in checkpoints for n in models_of(read_json(path / "record.json"))}
        for name in sorted({*names, *(path.name for path in checkpoints)}):
            shutil.copytree(run / CHECKPOINTS / name, draft / name)
        if checkpoints:
            shutil.copyfile(run / JOURNAL, draft / JOURNAL)


def read_note(files: Mapping[str, Path]) -> CheckpointNote | None:
    """The note among the files of an exported checkpoint; None where there is no usable one."""
    try:
        return read_record(files[FILE], CheckpointNote)
    except (KeyError, DataError):
        return None


def take_over(files: Mapping[str, Path], run: Path) -> None:
    """Copies an exported state into the folder of a run that has none of its own.

    Raises CheckpointError if every checkpoint, or a model that it refers to, is damaged.
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
        # Before the checkpoints: a run that has checkpoints relies on the journal beside them.
        write_text(files[JOURNAL].read_text(encoding="utf-8"), run / JOURNAL)


class Journal:
    """One line per optimiser update, beside the checkpoints, so that a resumed run has them all.

    Lines after the resumed state are cut, because those updates are done again.
    """

    def __init__(self, path: Path, *, last_step: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = []
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                # The last line may have been cut by a kill.
                with suppress(json.JSONDecodeError):
                    row = json.loads(line)
                    if row["step"] <= last_step:
                        kept.append(line)
        write_text("".join(f"{line}\n" for line in kept), path)
        self._path = path

    def add(self, row: dict[str, float]) -> None:
        """Appends a row."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(nan_as_null(row)) + "\n")

    def rows(self) -> list[dict[str, Any]]:
        """Every row, oldest first."""
        return [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]


def step_table(
    rows: Sequence[Mapping[str, Any]], evaluations: Mapping[int, Mapping[str, float]]
) -> str:
    """Updates and evaluations as CSV, one row per update; row 0 is the untrained attacker.

    Columns are sorted, because a resumed run reads its figures from files, in another order than
    they were measured in.
    """
    untrained = {"step": 0, "training_step": 0}
    joined = [{**row, **evaluations.get(int(row["step"]), {})} for row in (untrained, *rows)]
    names = {name for row in joined for name in row}
    columns = [*untrained, *sorted(names - untrained.keys())]
    return csv_text(joined, columns)
