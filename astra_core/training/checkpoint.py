"""Checkpoints are complete or absent, list their contents, and are checked before use.

A checkpoint is a folder ``step_000040`` with safetensors, a record and a manifest of SHA-256
digests; with ``training.sharding`` each process writes the safetensors of its part. It is written
to a temporary folder, flushed and renamed; its name has the number of finished training steps. If a
budget ended the run in the middle of an experience, the last one is ``step_000040_part``: a longer
run would never have had this state.
"""

import logging
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from astra_core.errors import CheckpointError
from astra_core.errors.exception_text import error_line
from astra_core.files import draft_folder_of, file_digest, read_json, write_json
from astra_core.training.distribution.distributed import World, lost_is_reported
from astra_core.training.distribution.sharding import is_divided

_LOG = logging.getLogger(__name__)
_FORMAT = 1
_PART = "_part"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The content of a checkpoint's folder."""

    step: int
    tensors: Mapping[str, Tensor]
    record: Mapping[str, Any]
    is_partial: bool = False

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"step_{self.step:06d}" + (_PART if self.is_partial else "")


class CheckpointStore:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, *, keep: int = 2) -> None:
        self.folder = folder
        self._keep = keep

    def save(self, checkpoint: Checkpoint, *, world: World | None = None) -> Path:
        """Writes a checkpoint and removes folders that nothing refers to any more.

        ``world``: those processes, which all call this; process 0 does all but write the others'
        parts. None for one whose tensors are whole.
        """
        world, path = world or World(), self.folder / checkpoint.name
        if not world.is_first:
            draft = Path(world.first_says(""))
            write_tensors(checkpoint.tensors, draft, world=world)
            return path
        with draft_folder_of(path) as draft:
            world.first_says(str(draft))
            write_tensors(checkpoint.tensors, draft, world=world)
            write_json(dict(checkpoint.record), draft / "record.json")
            _write_manifest(draft, checkpoint.step)
        self._retire(path)
        return path

    def save_model(self, name: str, write: Callable[[Path], None]) -> Path:
        """Writes a model folder that checkpoints refer to by ``name``."""
        path = self.folder / name
        with draft_folder_of(path) as draft:
            write(draft)
            _write_manifest(draft, 0)
        return path

    def dump(self, step: int) -> Path:
        """The folder for the tensors of an optimiser update."""
        return self.folder / "dumps" / f"step_{step:06d}"

    def newest(self, *, is_whole: bool = False) -> Checkpoint | None:
        """The newest undamaged checkpoint; a damaged one is reported and the previous one is used.

        ``is_whole``: true skips a checkpoint whose last training step was cut short.

        Raises CheckpointError if there are checkpoints and every one is damaged.
        """
        paths = [path for path in self._checkpoints() if not (is_whole and _is_part(path))]
        damaged: list[CheckpointError] = []
        for path in reversed(paths):
            try:
                found = load_checkpoint(path)
            except CheckpointError as error:
                damaged.append(error)
                continue
            for problem in damaged:
                _LOG.warning("%s; the previous one is used", problem)
            return found
        if paths:
            msg = (
                f"{self.folder} must hold an undamaged checkpoint, got {len(paths)} damaged; "
                "delete the folder to start again"
            )
            raise CheckpointError(msg)
        return None

    def last(self) -> list[Path]:
        """The folder of the newest checkpoint; of a partial one also the newest whole one."""
        paths = self._checkpoints()
        whole = [path for path in paths if not _is_part(path)]
        return sorted({*paths[-1:], *whole[-1:]})

    def model(self, name: str) -> Path:
        """The folder of a saved model, checked against its manifest.

        Raises CheckpointError if it is missing or damaged.
        """
        path = self.folder / name
        _verify(path)
        return path

    def adopt(self, name: str, source: Path) -> None:
        """Copies a saved model from another store's folder, checked against its manifest.

        Raises CheckpointError if it is missing or damaged.
        """
        _verify(source / name)
        with draft_folder_of(self.folder / name) as draft:
            shutil.copytree(source / name, draft, dirs_exist_ok=True)

    def clear(self) -> None:
        """Removes every checkpoint and every saved model."""
        for pattern in ("step_*", "best_*", "dumps"):
            for path in self.folder.glob(pattern):
                shutil.rmtree(path)

    def _checkpoints(self) -> list[Path]:
        found = (path for path in self.folder.glob("step_*") if path.is_dir())
        return sorted(found, key=lambda path: (len(path.name), path.name))

    def _retire(self, newest: Path) -> None:
        checkpoints = self._checkpoints()
        # A checkpoint newer than the present state is damaged, or of a run that was restarted.
        while checkpoints[-1] != newest:
            shutil.rmtree(checkpoints.pop())
        # Whole ones are kept in addition to a partial one: a longer run resumes from them.
        num_kept = self._keep + int(_is_part(newest))
        for path in checkpoints[:-num_kept]:
            shutil.rmtree(path)
        referred: set[str] = set()
        for path in checkpoints[-num_kept:]:
            try:
                referred |= models_of(read_json(path / "record.json"))
            except (OSError, ValueError):
                return  # one is damaged, so its references are unknown and nothing is removed
        for path in self.folder.glob("best_*"):
            if path.name not in referred:
                shutil.rmtree(path)


def models_of(record: Mapping[str, Any]) -> set[str]:
    """The saved models that the record of a checkpoint refers to, by name."""
    best = record.get("best", {})
    names = (found.get("model") for found in (best, best.get("before") or {}))
    return {str(name) for name in names if name}


def load_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a folder, its digests checked first.

    Raises CheckpointError if a file is missing or differs from the manifest.
    """
    manifest = _verify(path)
    return Checkpoint(
        step=manifest["step"],
        tensors=read_tensors(path),
        record=read_json(path / "record.json"),
        is_partial=_is_part(path),
    )


def _is_part(path: Path) -> bool:
    return path.name.endswith(_PART)


def _write_manifest(folder: Path, step: int) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    digests = {path.relative_to(folder).as_posix(): file_digest(path) for path in files}
    write_json({"format": _FORMAT, "step": step, "files": digests}, folder / "manifest.json")


def _verify(path: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = read_json(path / "manifest.json")
        files: dict[str, str] = manifest["files"]
        wrong = [name for name, digest in files.items() if file_digest(path / name) != digest]
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"checkpoint {path} must be complete, got {type(error).__name__}: {error}"
        raise CheckpointError(msg) from error
    if manifest.get("format") != _FORMAT:
        msg = f"checkpoint {path} must have format {_FORMAT}, got {manifest.get('format')}"
        raise CheckpointError(msg)
    if wrong:
        msg = f"checkpoint {path} must match its manifest, got changed bytes in {wrong}"
        raise CheckpointError(msg)
    return manifest


WHOLE = "state.safetensors"
PARTS = "state"


def write_tensors(tensors: Mapping[str, Tensor], folder: Path, *, world: World) -> None:
    """Writes them below a folder; with several processes each writes its part there.

    ``tensors``: by name. What is not divided is written by process 0 alone.

    Raises CheckpointError if a process could not write its part, LostProcessError if one crashed or
    is too slow.
    """
    if world.size == 1:
        from safetensors.torch import save_file

        save_file({name: own.contiguous() for name, own in tensors.items()}, folder / WHOLE)
        return
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    own = {
        name: value.contiguous()
        for name, value in tensors.items()
        if world.is_first or is_divided(value)
    }
    writer = HuggingFaceStorageWriter(str(folder / PARTS), save_distributed=True)
    try:
        with lost_is_reported():
            save(own, storage_writer=writer)
    except CheckpointException as error:
        said = {rank: error_line(problem) for rank, (problem, _) in sorted(error.failures.items())}
        msg = f"every process must be able to write its part of a checkpoint, got {said}"
        raise CheckpointError(msg) from error


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors below a folder by name, whole, however many processes wrote them."""
    if not (folder / PARTS).is_dir():
        from safetensors.torch import load_file

        return load_file(folder / WHOLE)
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    reader = HuggingFaceStorageReader(str(folder / PARTS))
    sizes = reader.read_metadata().state_dict_metadata
    found: dict[str, Tensor] = {
        name: torch.empty(own.size, dtype=own.properties.dtype)  # type: ignore[union-attr]
        for name, own in sizes.items()
    }
    with warnings.catch_warnings():
        # That one process reads alone is meant: every process needs the whole.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        load(found, storage_reader=reader, no_dist=True)
    return found
