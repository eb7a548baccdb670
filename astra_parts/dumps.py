"""Where two dumps of an update first differ; ``training.dump_steps`` writes them.

``python -m astra_parts.dumps A B`` compares two runs; its exit status is 0 if they are
equal and 1 if not.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from astra_core.errors import DataError
from astra_core.errors.exception_text import excerpt, shorten
from astra_core.files import read_json
from astra_core.redaction import visible
from astra_parts.arguments import LineParser, not_negative


def read_dump(folder: Path) -> dict[str, Tensor]:
    """The tensors of a dump in the order they were made in."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        names = read_json(folder / "dump.json")["names"]
        found = load_file(folder / "tensors.safetensors")
        return {name: found[name] for name in names}
    except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
        reason = shorten(f"{type(error).__name__}: {error}", limit=120)
        shown = excerpt(str(folder))
        msg = f"{shown} must hold a dump, got {reason}; see training.dump_steps"
        raise DataError(msg) from error


def differences(
    first: Mapping[str, Tensor], second: Mapping[str, Tensor], *, tolerance: float = 0.0
) -> dict[str, str]:
    """How each tensor that differs does, by its name; the earliest computed first."""
    names = dict.fromkeys([*first, *second])
    reasons = {name: _reason(first.get(name), second.get(name), tolerance) for name in names}
    return {name: reason for name, reason in reasons.items() if reason}


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status, after two dumps are compared."""
    parser = LineParser(prog="python -m astra_parts.dumps", description=__doc__)
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
    for name, reason in found.items():
        sys.stdout.write(f"{visible(name)}: {reason}\n")
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


if __name__ == "__main__":
    sys.exit(main())
