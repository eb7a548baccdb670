"""JSON between stages: written atomically, read into a typed record; a damaged file is one line.

And the tables beside it: CSV, and the cells of those in Markdown.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from astra_core.errors import DataError
from astra_core.files import read_json, write_json

Record = TypeVar("Record")


def write_record(record: Any, path: Path) -> None:
    """Writes a dataclass or a mapping as JSON to ``path``; NaN and infinities become null."""
    plain = nan_as_null(record if isinstance(record, dict) else asdict(record))
    write_json(plain, path)


def nan_as_null(record: dict[str, Any]) -> dict[str, Any]:
    """The record with NaN and infinities as null, for JSON."""
    return dict(json.loads(json.dumps(record), parse_constant=lambda _: None))


def table_cell(text: str) -> str:
    """The text as a cell of a Markdown table: in one line, without the bar that ends a cell."""
    return " ".join(text.split()).replace("|", "¦")


def csv_text(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """CSV with these columns, a line per row; a value that is missing or None is empty."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def read_record(path: Path, kind: type[Record], *, keys: Sequence[str] = ()) -> Record:
    """The record in a JSON report.

    Args:
        kind: A dataclass with its keys as fields; other keys of the file are ignored.
        keys: Further keys that it must have, as in ``read_report``.

    Raises DataError if there is none, it lacks a key, or a value is of another type.
    """
    found = read_report(path, keys=keys)
    try:
        return TypeAdapter(kind).validate_python(found)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
    is_missing = problem["type"] == "missing"
    got = "a report without it" if is_missing else f"{type(problem['input']).__name__} in its place"
    key = ".".join(map(str, problem["loc"]))
    msg = f"{path} must hold {key}, got {got}; run the stages before"
    raise DataError(msg)


def read_report(path: Path, *, keys: Sequence[str] = ()) -> dict[str, Any]:
    """The mapping in a JSON report.

    ``keys``: keys that it must have; ``attacker.value`` is a key of an inner record.

    Raises DataError if there is none, or it lacks a key.
    """
    try:
        found = read_json(path)
    except (OSError, ValueError, RecursionError) as error:
        msg = f"{path} must be a JSON report, got {type(error).__name__}; run the stages before"
        raise DataError(msg) from error
    if not isinstance(found, dict):
        got = type(found).__name__
        msg = f"{path} must be a JSON report, got {got} in place of it; run the stages before"
        raise DataError(msg)
    for key in keys:
        value: Any = found
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            msg = f"{path} must hold {key}, got a report without it; run the stages before"
            raise DataError(msg)
    return found
