"""Which columns of a csv file hold numbers; csv itself knows only text.

A column holds numbers if each filled cell is a plain decimal number: ``3``, ``-0.5``, ``1e-05``,
but not ``007``, ``+1``, ``1,000`` or one with more digits than a number keeps. An empty cell is
then null.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from astra_core.rollout.metadata import Scalar

_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,17})?(?:[eE][+-]?[0-9]{1,3})?")

Kind = type[int] | type[float] | type[str]


def column_kinds(rows: Iterable[Mapping[str, str | None]], names: Sequence[str]) -> dict[str, Kind]:
    """The type of each of these columns over all rows; text if every cell is empty."""
    filled: set[str] = set()
    whole, number = set(names), set(names)
    for row in rows:
        for name in number | whole:
            cell = row[name]
            if not cell:
                continue
            filled.add(name)
            if not _WHOLE.fullmatch(cell):
                whole.discard(name)
            if not (_NUMBER.fullmatch(cell) and math.isfinite(float(cell))):
                number.discard(name)
    kinds: dict[str, Kind] = dict.fromkeys(names, str)
    kinds |= dict.fromkeys(number & filled, float)
    kinds |= dict.fromkeys(whole & filled, int)
    return kinds


def cell_value(cell: str | None, kind: Kind) -> Scalar:
    """The cell's value by its column's type; None for a cell that a short row lacks."""
    if cell is None or kind is str:
        return cell
    return kind(cell) if cell else None
