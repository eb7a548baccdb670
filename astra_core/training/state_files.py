"""The tensors of a checkpoint as safetensors: one file, or one for each process of a divided run.

The files of a divided run are those of torch's distributed checkpoints in their Hugging Face
format: each holds what one process has, and says in its header where in the whole that lies. They
are read whole, by any number of processes.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from astra_core.errors import CheckpointError
from astra_core.errors.exception_text import shown
from astra_core.training.distribution.distributed import World, lost_is_reported
from astra_core.training.distribution.sharding import is_divided

WHOLE = "state.safetensors"
PARTS = "state"


def write_tensors(tensors: Mapping[str, Tensor], folder: Path, *, world: World) -> None:
    """Writes them below a folder; with several processes each writes its part there.

    Args:
        tensors: By name. What is not divided is written by process 0 alone.

    Raises:
        CheckpointError: A process could not write its part.
        LostProcessError: One crashed or is too slow.
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
        said = {rank: shown(problem) for rank, (problem, _) in sorted(error.failures.items())}
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
