"""Prompts in files: json, jsonl, csv, tsv, txt, yaml and parquet, distinguished by their suffix.

A text file may be packed by gzip. All but json and yaml are read as a stream, so a million rows
take no more memory than a thousand. A problem with a file is one error that names the place and
never quotes the text, which may be offensive.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astra_core.errors import ConfigurationError, DataError
from astra_core.errors.exception_text import excerpt
from astra_core.paths import found_at, is_file
from astra_core.rollout.metadata import Scalar
from tasks.params.yaml_files import MAX_BYTES, check_yaml, load_yaml
from tasks.sources.columns import (
    USUAL_NAMES,
    Columns,
    MissingColumnError,
    plain_row,
    results_in,
    shown_names,
)
from tasks.sources.text_files import (
    OTHER_SUFFIXES,
    cell_value,
    column_kinds,
    csv_rows,
    delimiter,
    json_lines,
    kind_of_file,
    lines_of,
    parse_json,
    readable,
    readable_parquet,
    table_rows,
    whole_text,
)

if TYPE_CHECKING:
    import pyarrow as pa

# Rows of a parquet file in memory at a time.
_BATCH_ROWS = 8192
_WAY_OUT = "see prompts.text_column"
_NO_YAML = "correct it, or write it as jsonl"


@dataclass(frozen=True, slots=True)
class FileRow:
    """One row of a file.

    Attributes:
        text: The prompt; None if the row has no text.
        place: Where a person finds the row in the file, such as ``line 3``.
    """

    text: str | None
    metadata: Mapping[str, Scalar] = field(default_factory=dict)
    place: str = field(default="", compare=False)


def read_rows(path: Path, columns: Columns) -> Iterator[FileRow]:
    """The prompts of one file in order.

    ``columns``: which column holds the prompt, and which others are kept; a row of plain text has
    none.

    Raises ConfigurationError if the file or a column does not exist, or the suffix has no reader;
    DataError if the file is broken, empty or not UTF-8.
    """
    reader = _READERS.get(kind_of_file(path))
    if reader is None:
        shown = excerpt(str(path))
        known = sorted([*_READERS, *OTHER_SUFFIXES])
        msg = f"prompts must come from one of {known}, got {shown}; convert the file"
        raise ConfigurationError(msg)
    if not is_file(path):
        msg = f"prompts must come from a file, got {found_at(path)}; check prompts.path"
        raise ConfigurationError(msg)
    if path.stat().st_size == 0:
        msg = f"{path} must hold prompts, got an empty file; check how it was written"
        raise DataError(msg)
    with readable(path):
        for number, row in enumerate(reader(path, columns), start=1):
            _check_text(row.text, place=f"{path} row {number}")
            yield row


def _check_text(text: str | None, *, place: str) -> None:
    """Checks that the row is text; UTF-16 without a mark looks like UTF-8 full of NUL."""
    if text is None:
        return
    if "\0" in text:
        msg = f"{place} must be text, got a NUL character; is the file UTF-16? Convert it"
        raise DataError(msg)
    try:
        text.encode()
    except UnicodeEncodeError:
        msg = f"{place} must hold whole characters, got half of one (a lone surrogate); correct it"
        raise DataError(msg) from None


def _read_json(path: Path, columns: Columns) -> Iterator[FileRow]:
    yield from _rows_in(parse_json(whole_text(path), place=str(path)), columns, path=path)


def _read_yaml(path: Path, columns: Columns) -> Iterator[FileRow]:
    text = whole_text(path)
    if len(text) > MAX_BYTES:
        msg = f"{path} must be at most {MAX_BYTES >> 10} Ki characters, got more; write it as jsonl"
        raise DataError(msg)
    check_yaml(text, subject=str(path), way_out=_NO_YAML)
    yield from _rows_in(load_yaml(text, subject=str(path), way_out=_NO_YAML), columns, path=path)


def _rows_in(rows: Any, columns: Columns, *, path: Path) -> Iterator[FileRow]:
    """The rows of a list, of lists by category, or of a list for each column."""
    rows = results_in(rows)
    if isinstance(rows, dict) and rows and all(isinstance(own, list) for own in rows.values()):
        name = columns.text_of(rows)
        if name not in rows and _is_table(rows):
            _require_column(name, list(map(str, rows)), path=path)
        rows = list(_by_column(rows, path) if name in rows else _by_category(rows, columns.text))
    if not isinstance(rows, list):
        msg = (
            f"{path} must be a list of prompts, or such lists by category, got "
            f"{type(rows).__name__}; write [...] or {{'category': [...]}}"
        )
        raise DataError(msg)
    for number, row in enumerate(rows, start=1):
        yield _row_of(row, columns, place=f"{path} row {number}")


def _is_table(lists: dict[str, list[Any]]) -> bool:
    """Whether lists without the prompt's column are columns all the same, as one's name tells."""
    is_named = any(str(name).lower() in USUAL_NAMES for name in lists)
    return len(lists) > 1 and is_named and len(set(map(len, lists.values()))) == 1


def _by_column(lists: dict[str, list[Any]], path: Path) -> Iterator[dict[str, Any]]:
    if len(set(map(len, lists.values()))) > 1:
        rule = "must have as many values in every column"
        msg = f"{path} {rule}, got lists of several lengths; write one object for each prompt"
        raise DataError(msg)
    return (dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True))


def _by_category(lists: dict[str, list[Any]], text: str) -> Iterator[Any]:
    for name, rows in lists.items():
        # A single list is the whole file under some name, such as "prompts".
        own = {"category": name} if len(lists) > 1 else {}
        for row in rows:
            told = {text: row} if isinstance(row, str) else row
            yield told | own if isinstance(told, dict) else row


def _read_jsonl(path: Path, columns: Columns) -> Iterator[FileRow]:
    for place, row in json_lines(path):
        yield _row_of(row, columns, place=place)


def _read_txt(path: Path, columns: Columns) -> Iterator[FileRow]:
    columns.of_header([], place=str(path))
    for number, line in enumerate(lines_of(path), start=1):
        if number == 1:
            _refuse_table(path, line, columns)
        yield FileRow(line, place=f"line {number}")


def _refuse_table(path: Path, first: str, columns: Columns) -> None:
    """Checks that the first line is no header, and no JSON, that names a column of prompts."""
    names = {*columns.of_prompt, *USUAL_NAMES}
    fields = [own.strip('" ') for own in first.strip().split(delimiter(path, names))]
    # Words that are not all names are a prompt that has a comma.
    are_names = bool(columns.of_prompt & {*fields}) or all(map(str.isidentifier, fields))
    is_header = len(fields) > 1 and are_names
    found = {"a table": fields if is_header else [], "JSON": _keys_of(first)}
    for what, own in found.items():
        if names & {*own, *map(str.lower, own)}:
            suffix = ".csv" if what == "a table" else ".jsonl"
            msg = f"{path} must hold a prompt in each line, got {what}; rename it to end in "
            raise DataError(msg + suffix)


def _keys_of(line: str) -> list[str]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return list(found) if isinstance(found, dict) else []


def _read_csv(path: Path, columns: Columns) -> Iterator[FileRow]:
    _, header = next(csv_rows(path, columns.of_prompt), (0, []))
    text = columns.text_of(header)
    _require_column(text, header, path=path)
    kept = columns.of_header(header, place=str(path))
    rows = partial(table_rows, path, columns.of_prompt)
    # The file is read twice: whether a column holds numbers is known only at its end.
    kinds = column_kinds((row for _, row in rows()), kept) if kept else {}
    for place, row in rows():
        values = {name: cell_value(row[name], kinds[name]) for name in kept}
        yield FileRow(row[text], columns.pick(values, place=place), _last_words(place))


def _read_parquet(path: Path, columns: Columns) -> Iterator[FileRow]:
    import pyarrow.parquet as pq

    with readable_parquet(path), pq.ParquetFile(path) as file:
        text = columns.text_of(file.schema_arrow.names)
        _require_column(text, file.schema_arrow.names, path=path)
        kept = columns.of_header(_plain_columns(file.schema_arrow, columns), place=str(path))
        names = list(dict.fromkeys([text, *kept]))
        batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=names)
        rows = chain.from_iterable(batch.select(names).to_pylist() for batch in batches)
        for number, row in enumerate(rows, start=1):
            yield _row_of(row, columns, place=f"{path} row {number}")


def _plain_columns(schema: "pa.Schema", columns: Columns) -> list[str]:
    """The columns to read: without lists and structs that may be left out."""
    from pyarrow import types

    if columns.wanted != "all":
        return list(schema.names)
    named = {columns.text, "category", *columns.told}
    nested = [own for own in schema if types.is_nested(own.type) and own.name not in named]
    for entry in nested:
        columns.left_out.setdefault(entry.name, str(entry.type).partition("<")[0])
    return [entry.name for entry in schema if entry not in nested]


def _row_of(row: Any, columns: Columns, *, place: str) -> FileRow:
    """One parsed row: a string, null, or an object with the column of the prompt."""
    if not isinstance(row, dict):
        text = _text_of(row, place=place)
        metadata = {} if text is None else columns.pick({}, place=place)
        return FileRow(text, metadata, _last_words(place))
    row = plain_row(row, columns.text)
    name = columns.text_of(row)
    if name not in row:
        msg = f"{place} must have the key '{name}', got {shown_names(row)}; {_WAY_OUT}"
        raise MissingColumnError(msg, map(str, row))
    text = _text_of(row[name], place=place)
    return FileRow(text, columns.pick(row, place=place), _last_words(place))


def _last_words(place: str) -> str:
    """The place without the file: ``line 3`` from ``my/prompts.jsonl line 3``."""
    return " ".join(place.rsplit(" ", 2)[1:])


def _text_of(value: Any, *, place: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    msg = f"{place} must hold text, got {type(value).__name__}; {_WAY_OUT}"
    raise DataError(msg)


def _require_column(text_column: str, columns: list[str], *, path: Path) -> None:
    if columns.count(text_column) > 1:
        msg = f"{path} must have one column '{text_column}', got several; rename the others"
        raise ConfigurationError(msg)
    if text_column not in columns:
        msg = f"{path} must have the column '{text_column}', got {shown_names(columns)}; {_WAY_OUT}"
        raise MissingColumnError(msg, columns)


_READERS: dict[str, Callable[[Path, Columns], Iterator[FileRow]]] = {
    ".csv": _read_csv,
    ".json": _read_json,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
    ".txt": _read_txt,
    ".yaml": _read_yaml,
}
