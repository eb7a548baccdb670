"""The tensors of one optimiser update on disk; ``astra_parts.dumps`` compares two such dumps."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from astra_core.files import draft_folder_of, write_json


def write_dump(folder: Path, tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
    """Writes a folder with the tensors and the figures of an update."""
    from safetensors.torch import save_file

    with draft_folder_of(folder) as draft:
        # Copies, because safetensors refuses tensors that share memory.
        whole = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
        save_file(whole, draft / "tensors.safetensors")
        figures = {key: x if math.isfinite(x) else str(x) for key, x in record.items()}
        write_json({"names": list(tensors), "figures": figures}, draft / "dump.json")


def batch_tensors(window: Sequence[Any]) -> dict[str, Tensor]:
    """Every tensor in the batches of a window, as ``batch/number/attribute``."""
    return {
        f"batch/{index}/{name}": tensor.detach()
        for index, batch in enumerate(window)
        for name, tensor in _tensors_in(batch)
    }


def _tensors_in(value: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Tensors in nested dataclasses, mappings and sequences."""
    if isinstance(value, Tensor):
        yield name, value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _tensors_in(getattr(value, field.name), f"{name}.{field.name}".strip("."))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors_in(item, f"{name}.{key}".strip("."))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _tensors_in(item, f"{name}.{index}".strip("."))
