"""The tensors of one optimiser update on disk, and where two such dumps first differ.

``python -m astra_core.training.dumps A B`` compares two runs; its exit status is 0 if they are
equal and 1 if not.
"""

import dataclasses
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from astra_core.errors import DataError
from astra_core.errors.arguments import LineParser, not_negative
from astra_core.errors.exception_text import excerpt, shortened
from astra_core.files import draft_folder_of, read_json, write_json
from astra_core.redaction import visible


@dataclass(frozen=True, slots=True)
class DumpDifference:
    """How two dumps differ.

    Attributes:
        name: The tensor; in the order batch, gradient, weight.
        reason: In words, with the largest difference.
    """

    name: str
    reason: str


def write_dump(folder: Path, tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
    """Writes a folder with the tensors and the figures of an update."""
    from safetensors.torch import save_file

    with draft_folder_of(folder) as draft:
        # Copies, because safetensors refuses tensors that share memory.
        whole = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
        save_file(whole, draft / "tensors.safetensors")
        figures = {key: x if math.isfinite(x) else str(x) for key, x in record.items()}
        write_json({"names": list(tensors), "figures": figures}, draft / "dump.json")


def read_dump(folder: Path) -> dict[str, Tensor]:
    """The tensors of a dump in the order they were made in.

    Raises:
        DataError: The folder holds no dump.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        names = read_json(folder / "dump.json")["names"]
        found = load_file(folder / "tensors.safetensors")
        return {name: found[name] for name in names}
    except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
        reason = shortened(f"{type(error).__name__}: {error}", limit=120)
        shown = excerpt(str(folder))
        msg = f"{shown} must hold a dump, got {reason}; see training.dump_steps"
        raise DataError(msg) from error


def differences(
    first: Mapping[str, Tensor], second: Mapping[str, Tensor], *, tolerance: float = 0.0
) -> list[DumpDifference]:
    """Where two dumps differ, the earliest computed first.

    Args:
        first: The dump whose order counts.
        second: The other one.
        tolerance: Differences up to it are ignored.
    """
    found = []
    for name in [*first, *(name for name in second if name not in first)]:
        reason = _reason(first.get(name), second.get(name), tolerance)
        if reason:
            found.append(DumpDifference(name, reason))
    return found


def batch_tensors(window: Sequence[Any]) -> dict[str, Tensor]:
    """Every tensor in the batches of a window, as ``batch/number/attribute``."""
    return {
        f"batch/{index}/{name}": tensor.detach()
        for index, batch in enumerate(window)
        for name, tensor in _tensors_in(batch)
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status, after two dumps are compared."""
    parser = LineParser(prog="python -m astra_core.training.dumps", description=__doc__)
    parser.add_argument("first", type=Path, metavar="A")
    parser.add_argument("second", type=Path, metavar="B")
    parser.add_argument(
        "--tolerance", type=not_negative, default=0.0, help="largest harmless difference"
    )
    chosen = parser.parse_args(arguments)
    try:
        first, second = read_dump(chosen.first), read_dump(chosen.second)
    except DataError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    found = differences(first, second, tolerance=chosen.tolerance)
    for difference in found:
        sys.stdout.write(f"{visible(difference.name)}: {difference.reason}\n")
    if not found:
        sys.stdout.write(f"{len(first)} tensors are equal\n")
    return int(bool(found))


def _reason(first: Tensor | None, second: Tensor | None, tolerance: float) -> str:
    if first is None or second is None:
        return "only in the second" if first is None else "only in the first"
    if first.shape != second.shape or first.dtype != second.dtype:
        return f"{first.dtype} {tuple(first.shape)} against {second.dtype} {tuple(second.shape)}"
    if not first.numel():
        return ""
    gap = (first.double() - second.double()).abs()
    # NaN at the same place is the same; NaN at one of them is not.
    gap[first.isnan() & second.isnan() | (first == second)] = 0.0
    gap = gap.nan_to_num(nan=math.inf)
    largest = float(gap.max())
    if largest <= tolerance:
        return ""
    return f"largest difference {largest:.3g}, in {int((gap > tolerance).sum())} of {gap.numel()}"


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


if __name__ == "__main__":
    sys.exit(main())
